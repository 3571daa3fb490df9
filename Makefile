.DEFAULT_GOAL := help
SHELL := /bin/bash

# The kernel that "make vm" boots: 6.1 or 6.12.
KERNEL ?= 6.1

build: ## build bin/viplab
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go build -o bin/ ./cmd/viplab && give_back

test: ## run all tests, in virtual machines where this kernel lacks something
	@scripts/test

conform: ## judge the built-in proxiers (or ARGS='--proxier iptables --ip 6')
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@bin/viplab conform $(if $(ARGS),$(ARGS),--proxier iptables,iptables-legacy,nftables,userspace,ipvs)

prove: ## show that every scenario can fail (or ARGS='--focus ^etp-local')
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@bin/viplab prove $(ARGS)

e2e: build ## run Kubernetes' own tests of networking in a lab (or ARGS='--focus Conformance')
	@bin/viplab e2e $(ARGS)

bench: ## measure labs and tables of network policies
	@. scripts/lib.sh && find_go && go run ./internal/cmd/labbench && go run ./internal/cmd/netpolbench

bench-proxiers: ## measure proxiers with many Services (ARGS='-sizes 100 -proxiers iptables')
	@. scripts/lib.sh && find_go && go run ./internal/cmd/proxierbench $(ARGS)

apidiff: ## compare the lab's API with that of Kubernetes (ARGS='-cases 1000 -seed 7')
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go build -o bin/ ./internal/cmd/apidiff && give_back
	@bin/apidiff $(ARGS)

dnsdiff: ## compare the lab's DNS with CoreDNS (ARGS='-names 5000 -seed 7')
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go build -o bin/ ./internal/cmd/dnsdiff && give_back
	@bin/dnsdiff $(ARGS)

policydiff: build ## compare verdicts on network policies with cyclonus, and with packets (ARGS='-cases 1000 -seed 7')
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go build -o bin/ ./internal/cmd/policydiff && give_back
	@mkdir -p viplab-out
	@bin/policydiff -write viplab-out/cyclonus.json $(ARGS)
	@bin/viplab netpol --cases viplab-out/cyclonus.json
	@bin/policydiff -packets

e2efaults: build ## put faults into a proxier, and see which of Kubernetes' specs notice (ARGS='-fault affinity')
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go run ./internal/cmd/e2efaults $(ARGS)

pages: ## drive the pages in Chromium, and check them with axe-core, which needs npm
	@scripts/pages

lessons: build ## run the commands of the lessons, keep what they print, and write the pages of docs/lessons
	@set -e; for folder in internal/lessons/course/[0-9]*; do \
		bin/viplab learn -f $$folder --record; \
		for lang in en ko; do bin/viplab learn -f $$folder --page --lang $$lang >docs/lessons/$$lang/$${folder##*/}.md; done; \
	done
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go run ./internal/cmd/articles docs/lessons

examples: ## build and run the example modules of docs/examples
	@. scripts/lib.sh && find_go && set -e && for m in docs/examples/*/; do (cd $$m && go vet ./... && go test ./...); done

fuzz: ## fuzz decoders of what people and judged programs write (ARGS='10s FuzzDecode')
	@scripts/fuzz $(ARGS)

learners: build ## measure what learners cost a machine that does nothing else (ARGS='30 services nodeport')
	@scripts/learners $(ARGS)

soak: build ## judge in a loop; fail if verdicts change or something is left (ARGS='200 --proxier iptables')
	@scripts/soak $(ARGS)

dist: ## make archives, Debian packages, bills of materials and checksums of a release in bin/dist
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go run ./internal/cmd/dist $(ARGS) && give_back

image: ## make a container image in bin/image, and judge a scenario in it
	@. scripts/lib.sh && find_go && CGO_ENABLED=0 go run ./internal/cmd/dist -image -out bin/image $(ARGS) && give_back

lint: ## check the source with golangci-lint and shellcheck
	@scripts/lint

vm: ## run CMD='...', or a shell, in a virtual machine (KERNEL=6.1 or 6.12)
	@scripts/vm --kernel $(KERNEL) $(if $(CMD),bash -c '$(subst ','\'',$(CMD))')

clean: ## remove what was built, except the cache in ~/.cache/viplab
	@rm -rf bin viplab-out

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build test conform prove e2e e2efaults bench bench-proxiers apidiff dnsdiff policydiff pages lessons examples fuzz learners soak dist image lint vm clean help

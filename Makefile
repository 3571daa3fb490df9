.DEFAULT_GOAL := help
SHELL := /bin/bash

# The kernel of "make vm": 6.1 or 6.12.
KERNEL ?= 6.1

build: ## build bin/viplab
	@. scripts/lib.sh && find_go && go build -o bin/ ./cmd/viplab && give_back

test: ## run all tests, in virtual machines what this kernel cannot do; as root or not
	@scripts/test

conform: ## install what is missing and judge the built-in proxiers that this kernel can run (or ARGS='--proxier iptables --ip 6')
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@bin/viplab conform $(if $(ARGS),$(ARGS),--proxier iptables,iptables-legacy,nftables,userspace,ipvs)

prove: ## put faults into the built-in proxiers and show which scenarios notice (or ARGS='--focus ^etp-local')
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@bin/viplab prove $(ARGS)

bench: ## measure what building a lab costs, beside the floor of plain netlink, and what tables of network policies cost
	@. scripts/lib.sh && find_go && go run ./internal/cmd/labbench && go run ./internal/cmd/netpolbench

bench-proxiers: ## measure what serving 100, 1,000 and 10,000 Services costs each proxier, kube-proxy too (ARGS='-sizes 100 -proxiers iptables')
	@. scripts/lib.sh && find_go && go run ./internal/cmd/proxierbench $(ARGS)

lint: ## check the source with golangci-lint (built on first use)
	@scripts/lint

vm: ## run CMD='...' in a virtual machine with Debian's kernel (KERNEL=6.1 or 6.12); without CMD a shell
	@scripts/vm --kernel $(KERNEL) $(if $(CMD),bash -c '$(subst ','\'',$(CMD))')

clean: ## remove what was built; the cache with kernels and tools (~/.cache/viplab) stays
	@rm -rf bin viplab-out

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build test conform prove bench bench-proxiers lint vm clean help

.DEFAULT_GOAL := help
SHELL := /bin/bash

KERNEL ?= 6.1
CMD ?=

vm: ## run CMD='...' in a virtual machine with Debian's kernel (KERNEL=6.1 or 6.12); without CMD a shell
	@scripts/vm --kernel $(KERNEL) $(if $(CMD),bash -c '$(CMD)')

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## /{ printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: vm help

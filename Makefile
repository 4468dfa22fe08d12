# Trainhouse: `make demo` shows it, `make test` proves it, `make bench` measures it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install demo down test unit lint bench chaos clean help
.DEFAULT_GOAL := help

help:                 ## this list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */  make \1\t/'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m trainhouse.deploy.local.prefetch
	@touch $@

demo: $(STAMP)         ## start a stack, train the example on it, sum up
	@$(BIN)/trainhouse demo --data-dir .trainhouse

down: $(STAMP)         ## stop the stack of `make demo`; its data stays
	@$(BIN)/trainhouse down --data-dir .trainhouse

install: $(STAMP)     ## make .venv with everything that Trainhouse needs

test: lint unit integration  ## lint, types, import contracts and all tests, on ports and folders of their own

lint: $(STAMP)        ## ruff, mypy --strict, import contracts
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: $(STAMP)        ## tests without servers
	@$(BIN)/pytest tests/unit tests/simulation

integration: $(STAMP) ## tests on real servers, short seeded faults included
	@$(BIN)/pytest tests/contract tests/integration

bench: $(STAMP)       ## figures beside their peers, one JSON line each
	@$(BIN)/python -m tests.bench

SEED ?= 1
EACH ?= 10
chaos: $(STAMP)       ## kill every part at seeded instants while jobs train, then judge: SEED=1 EACH=10
	@$(BIN)/python -m tests.chaos --seed $(SEED) --each $(EACH)

clean:                ## remove .venv and the demo's data
	rm -rf $(VENV) .trainhouse

# Trainhouse: `make demo` shows it, `make test` tries it, `make test-full` proves it, `make bench` measures it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests start hundreds of processes: without compiled modules each of them compiles what it imports anew, 3.5 s of CPU for a rank's.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo down test test-full unit lint lint-types lint-rest audit integration stack faults parts pages quick-servers quick-journey bench cuda chaos layouts security docs clean help
.DEFAULT_GOAL := help

help:                 ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/'

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

test: lint            ## lint, types, import contracts, unit tests, one test of each server, one journey through a stack, a look at the pages
	@$(MAKE) --no-print-directory unit PROFILE=quick
	@$(MAKE) --no-print-directory -j2 quick-servers quick-journey
	@$(BIN)/python -m tests.quick pages

# Those of whole stacks wait much and are the longest: they come first, and what computes beside them. Three at a time, in this order, all to
# their ends: one that fails hides nothing of the others.
test-full: lint       ## lint and all tests, on ports and folders of their own
	@$(MAKE) --no-print-directory -k -j3 stack faults unit parts pages

lint: $(STAMP)        ## ruff, mypy --strict, import contracts, words and shape, bandit, a scan for secrets
	@$(MAKE) --no-print-directory -j2 lint-types lint-rest

# The longest of them has a process to itself.
lint-types: $(STAMP)
	@$(BIN)/mypy

lint-rest: $(STAMP)
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.style
	@$(BIN)/bandit -q -c pyproject.toml --confidence-level medium -r $(PACKAGES) 2> >(grep -v -e 'nosec encountered' -e 'Test in comment' >&2)
	@git ls-files -z -- $(SCANNED) | xargs -0 -P 2 -n 450 $(BIN)/python -m tests.style.secret_scan --no-verify

# The packages, and all that is searched for secrets: no golden samples and no libraries of others, which are full of hashes.
PACKAGES := events scheduler workers projections checkpointing deploy trainhouse/cli trainhouse/client trainhouse/gateway trainhouse/reference $(wildcard trainhouse/*.py)
SCANNED := '*.py' '*.md' '*.yaml' '*.sql' '*.toml' '*.html' Makefile .ci ':!events/contract'

audit: $(STAMP)       ## asks the published advisories about every pinned package
	@$(BIN)/python -m trainhouse.deploy.advisories

# Whole files of tests in two processes.
TWO := -n 2 --dist loadfile
# How many examples a random test makes: `full` or `quick` (tests/support/profiles.py).
PROFILE ?= full
EXAMPLES := --hypothesis-profile=$(PROFILE)
# Tests that harm a whole stack; in one process, since a second one would have a second stack. Those that share one come after each other:
# it ends with the last of them.
FAULTY := tests/integration/test_archive.py tests/integration/test_expire.py tests/integration/test_journey.py \
	tests/integration/test_stack_up.py tests/integration/test_documentation_alone.py tests/integration/test_chaos_short.py \
	tests/integration/test_pool_moves_killed.py tests/integration/test_control_plane.py \
	tests/integration/test_interactive_killed.py
# Tests on the shared stack that have a second one, beside the others: half an hour each.
BESIDE := tests/stack/test_documentation_howto.py

unit: $(STAMP)        ## tests without servers; PROFILE=quick makes a fifth of the random examples
	@$(BIN)/pytest $(TWO) $(EXAMPLES) tests/unit tests/simulation

integration: $(STAMP) ## tests on real servers, short seeded faults included
	@$(MAKE) --no-print-directory -j3 stack faults parts pages

# Beside each other, with servers of their own: the first two wait much, the others compute.
stack: $(STAMP)       ## tests on one whole stack that all of them leave as it is
	@$(BIN)/pytest $(EXAMPLES) $(BESIDE:%=--ignore=%) tests/stack

faults: $(STAMP)      ## tests that kill, stop and starve parts of a whole stack; and those of how-to pages, on one of their own
	@$(BIN)/pytest $(EXAMPLES) $(BESIDE) $(FAULTY)

parts: $(STAMP)       ## tests of parts on real servers
	@$(BIN)/pytest $(TWO) $(EXAMPLES) $(FAULTY:%=--ignore=%) tests/contract tests/integration tests/security

# How long a page holds its thread is that thread's own processor time, so others may run beside.
pages: $(STAMP)       ## the pages in Chromium
	@$(BIN)/pytest $(EXAMPLES) tests/browser

quick-servers: $(STAMP)
	@$(BIN)/python -m tests.quick servers

quick-journey: $(STAMP)
	@$(BIN)/python -m tests.quick journey

docs: $(STAMP)        ## the documentation, in build/docs; a dead link or a page that is in no menu is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q && echo build/docs/index.html

# Suites that a CUDA device and its stand-ins share. Elsewhere `make unit` runs the stand-ins.
ON_DEVICE := tests/unit/workers/session/test_session_on_device.py tests/unit/workers/session/test_device_activity.py \
	tests/unit/workers/data/test_device_copies.py tests/unit/checkpointing/test_checkpointing_copier.py tests/contract/test_agent_devices.py
cuda: $(STAMP)        ## on a machine with a CUDA device: the suites that a device shares with its stand-ins, and what a save costs there
	@$(BIN)/python -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'torch sees no CUDA device on this machine')"
	@$(BIN)/pytest -rs $(ON_DEVICE)
	@$(BIN)/python -m tests.bench.device_stall

bench: $(STAMP)       ## figures beside their peers, one JSON line each
	@$(BIN)/python -m tests.bench

SEED ?= 1
FAULTS ?= 100
chaos: $(STAMP)       ## faults of all kinds at seeded instants while jobs train, then judge: SEED=1 FAULTS=100
	@$(BIN)/python -m tests.chaos.emulated --seed $(SEED) --faults 1000
	@$(BIN)/python -m tests.chaos --seed $(SEED) --faults $(FAULTS)
	@$(BIN)/python -m tests.chaos.sql_fuzz --seed $(SEED) --texts 100000

RANKS ?= 8
layouts: $(STAMP)     ## the example program in every layout of RANKS=8 gloo ranks, and restores of one in another
	@$(BIN)/python -m tests.layouts --ranks $(RANKS)

PROBES ?= 10000
security: $(STAMP)    ## probes of every door of a stack of its own, as strangers and as another project: PROBES=10000 SEED=1
	@$(BIN)/python -m tests.security --probes $(PROBES) --seed $(SEED)

clean:                ## remove .venv and the demo's data
	rm -rf $(VENV) .trainhouse

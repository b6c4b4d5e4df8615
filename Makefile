# Everything a contributor types. Each target prepares what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
# The processes of pytest, one for each core: make test WORKERS=0 is one alone, which a debugger can follow.
WORKERS ?= auto
# Of make test-aws: names the tables and queues, which are made and deleted; an emulator's URL.
ENV ?=
ENDPOINT ?=
# Of make bench-before: what this tree is measured beside.
COMMIT ?=
# More arguments: make test ARGS="-k token".
ARGS ?=
# The environment, and the Python that it is made with.
VENV ?= .venv
VENV_PYTHON ?= >=3.11

UV := $(PYTHON) scripts/uv.py
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Those that measure, one by one after all others; there may be none among those that ARGS wants.
ALONE = none_is_fine() { "$$@" || test $$? -eq 5; }; none_is_fine $(BIN)/python -m pytest -n 0 -m alone
SOURCES = $(wildcard src tests scripts benchmarks examples)
COMPILE := $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command "make lock"

# Tests start Python by the hundred, and none of these shall compile again what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo generation-demo fleet-demo test test-slow test-all test-long test-aws test-pythons screenshots coverage
.PHONY: check lint types proto-check format proto proto-generate lock bench bench-peers bench-before clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(READY) ## Make .venv with everything in it, .venv/bin/airunner included
	@$(BIN)/python scripts/programs.py
	@$(BIN)/python -m compileall -q src

demo: $(READY) ## Start a server and a worker, run three jobs and watch them live
	@$(BIN)/airunner demo

generation-demo: $(READY) ## Order pictures in an application on PostgreSQL, and see each hop: ARGS=--serve stays
	@$(BIN)/python scripts/generation_demo.py $(ARGS)

fleet-demo: $(READY) ## Let a fleet work, break and clean up, on an emulated AWS
	@$(BIN)/python scripts/fleet_demo.py

test: $(READY) ## Run the tests but for the slow ones
	@$(PYTEST) $(ARGS)

test-slow: $(READY) ## Run the slow tests alone
	@HYPOTHESIS_PROFILE=ci $(PYTEST) -m "slow and not long and not alone" $(ARGS)
	@$(ALONE) $(ARGS)

test-all: $(READY) ## Run the tests and the slow ones
	@HYPOTHESIS_PROFILE=ci $(PYTEST) -m "not long and not alone" $(ARGS)
	@$(ALONE) $(ARGS)

test-long: $(READY) ## Run all tests, those that take minutes too, with many more examples
	@HYPOTHESIS_PROFILE=long $(PYTEST) -m "not alone" --timeout=3600 $(ARGS)
	@$(ALONE) $(ARGS)

test-aws: $(READY) ## Run the conformance suite on an AWS account: ENV=NAME, or on an emulator: ENDPOINT=URL
	@test -n "$(ENV)" || { echo "make test-aws ENV=NAME [ENDPOINT=URL]: see CONTRIBUTING.md" >&2; exit 2; }
	@TEST_AWS_ENV="$(ENV)" TEST_AWS_ENDPOINT="$(ENDPOINT)" $(BIN)/python -m pytest -n 0 --timeout=600 \
		tests/conformance/test_stores.py -k "[aws]" $(ARGS)

test-pythons: ## Run the tests on each Python from 3.11 to 3.13 that is installed
	@MAKE="$(MAKE)" $(PYTHON) scripts/pythons.py test

screenshots: $(READY) ## Make the pictures of pages in docs/images anew, with Chromium
	@SCREENSHOTS=docs/images $(BIN)/python -m pytest -n 0 -m browser -k becomes_a_picture tests/acceptance/test_generation_demo.py

coverage: $(READY) ## Measure what the tests run of src/airunner, the processes that they start included
	@rm -f .coverage .coverage.*
	@HYPOTHESIS_PROFILE=ci $(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal -m "not long and not alone" $(ARGS)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --skip-covered

check: lint types proto-check ## Check style, types, the contract and its generated code

lint: $(READY)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(READY)
	$(BIN)/mypy $(SOURCES)

proto-check: $(READY)
	$(BIN)/buf lint
	$(BIN)/python scripts/generate_proto.py --check

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

proto: $(READY) ## Generate the Python code of api/
	$(BIN)/python scripts/generate_proto.py

proto-generate: proto

lock: ## Resolve the dependencies again, with ARGS=--upgrade to newer versions
	$(COMPILE) --all-extras --group dev --output-file requirements/dev.txt $(ARGS)
	$(COMPILE) --constraints requirements/dev.txt --output-file requirements/core.txt $(ARGS)

bench: $(READY) ## Measure the speed, against limits measured in the same run
	@$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(READY) ## Measure the speed beside other job queues: ARGS="--rounds 7 drains", or ARGS=--sweep
	@$(BIN)/python -m benchmarks.peers $(ARGS)

bench-before: $(READY) ## Measure this tree and an earlier commit in turns: COMMIT=ID, ARGS="drain logs"
	@test -n "$(COMMIT)" || { echo "make bench-before COMMIT=ID: see docs/performance.md" >&2; exit 2; }
	@$(BIN)/python -m benchmarks.before "$(COMMIT)" $(ARGS)

clean: ## Remove the environment, the tools and the caches
	rm -rf .venv .venv-* .tools .bench build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml requirements/dev.txt scripts/uv.py
	@test -x $(BIN)/python || $(UV) venv --quiet --python '$(VENV_PYTHON)' $(VENV)
	@$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

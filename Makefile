# Everything a contributor types. Each target prepares what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
# More processes for pytest: make test WORKERS=2. More arguments: make test ARGS="-k token".
WORKERS ?= 0
ARGS ?=

UV := $(PYTHON) scripts/uv.py
BIN := .venv/bin
READY := .venv/.ready
SOURCES = $(wildcard src tests scripts benchmarks examples)
COMPILE := $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command "make lock"

.PHONY: help setup demo test test-long check lint types proto-check format proto proto-generate lock bench clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## Make .venv with everything in it, .venv/bin/airunner included

demo: $(READY) ## Start a server and a worker, run three jobs and watch them live
	@$(BIN)/airunner demo

test: $(READY) ## Run the tests
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-long: $(READY) ## Run the tests and the long ones, with many more examples
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n $(WORKERS) -m "" --timeout=3600 $(ARGS)

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
	@MALLOC_TRIM_THRESHOLD_=67108864 $(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove the environment, the tools and the caches
	rm -rf .venv .tools .bench build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml requirements/dev.txt scripts/uv.py
	@test -x $(BIN)/python || $(UV) venv --quiet --python '>=3.11' .venv
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# Every target but the demo uses .venv, which is created when it is missing and updated when the pins change.
# `make test` is what continuous integration runs; `make check` is for the minutes between two commits.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := build/demo
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer, found " + sys.version.split()[0] + "; name one with make PYTHON=...")'
PYTEST_JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help venv format lint mypy types layers fast check test test-postgres nightly mutants bench bench-postgres bench-compare bench-peers bench-growth demo docs clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a minute, the first time)"
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq --editable '.[dev]'
	@touch $(READY)

venv: $(READY)  ## make the virtual environment

format: $(READY)  ## rewrite the code in the house format
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

lint: $(READY)  ## format and lint, read-only
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

mypy: $(READY)  ## mypy --strict
	@$(BIN)/mypy --no-error-summary

types: mypy  ## mypy --strict and pyright
	@$(BIN)/pyright --warnings

layers: $(READY)  ## the import rules of the architecture
	@$(BIN)/lint-imports --no-logo

fast: $(READY)  ## the fast tests, on SQLite
	@HYPOTHESIS_PROFILE=dev $(BIN)/pytest -q -n $(PYTEST_JOBS) --dist worksteal -m 'not slow'

check: lint mypy layers fast  ## format, lint, mypy, layers, fast tests on SQLite: about two minutes on two cores

test: lint types layers  ## everything continuous integration runs: about ten minutes on two cores
	@HYPOTHESIS_PROFILE=ci $(BIN)/pytest -q -n $(PYTEST_JOBS) --dist worksteal

test-postgres: $(READY)  ## the scenarios and crashes on PostgreSQL instead of SQLite
	@HOLDFAST_TEST_STORE=postgres HYPOTHESIS_PROFILE=dev $(BIN)/pytest -q -n $(PYTEST_JOBS) --dist worksteal tests/scenarios tests/postgres tests/workers \
		tests/crash/test_processes.py tests/crash/test_every_commit.py tests/crash/test_flows_every_commit.py \
		tests/crash/test_contract_every_commit.py tests/crash/test_request_kinds.py tests/crash/test_activity_cancels.py \
		tests/crash/test_retry_requests.py tests/crash/test_killed_later_starts.py

nightly: $(READY)  ## far more random examples, and the tests above half a minute
	@HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -q -n $(PYTEST_JOBS) --dist worksteal --timeout 7200 -o faulthandler_timeout=7260

mutants: $(READY)  ## mutation tests: break the engine in many small ways, each of which a test must catch
	@$(BIN)/python -m tools.mutants

bench: $(READY)  ## measure Holdfast beside the bare limit of this machine: under five minutes; RECORD=1 as below
	@$(BIN)/python -m benchmarks $(if $(RECORD),--record)

bench-postgres: $(READY) build/peers/dbos/ready  ## the same on PostgreSQL, beside DBOS: about five minutes; RECORD=1 as below
	@HOLDFAST_BENCH_DBOS=build/peers/dbos/bin/python $(BIN)/python -m benchmarks.postgres $(if $(RECORD),--record)

bench-compare: $(READY)  ## measure this source tree against another one, in alternating pairs: make bench-compare OTHER=path/to/src
	@$(BIN)/python -m benchmarks.compare $(OTHER)

bench-peers: $(READY)  ## measure Holdfast beside DBOS, absurd and Restate: 15 minutes; QUICK=1 for three, RECORD=1 writes docs/performance.md
	@$(BIN)/python -m benchmarks.peers $(if $(QUICK),--quick) $(if $(RECORD),--record)

bench-growth: $(READY)  ## how cost grows with history, closed instances, engines and payloads: 10 minutes; QUICK=1, RECORD=1 as above
	@$(BIN)/python -m benchmarks.growth $(if $(QUICK),--quick) $(if $(RECORD),--record)

build/peers/dbos/ready: $(READY) benchmarks/peers/environments.py
	@$(BIN)/python -m benchmarks.peers.environments dbos
	@touch $@

docs: $(READY)  ## write the generated pages of the documentation
	@$(BIN)/python -m tools.generate_docs

demo: $(DEMO)/.ready  ## kill a worker in the middle of a step and watch another continue
	@$(DEMO)/bin/python -m tools.demo

# The demo needs Holdfast without the tools of the tests, so it has a small environment of its own.
$(DEMO)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(DEMO) (some seconds, the first time)"
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(DEMO)
	@PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(DEMO)/bin/python -m pip install -qq --editable .
	@touch $@

clean:  ## remove the environment and everything generated
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist

# make demo    the daemon with bundled servers, to have a look at it
# make test    the tests; says which of them want a program that is not installed
# make check   all that a change must pass: format, lint, types, tests
#
# Everything is installed into .venv from requirements/*.lock, once: the stamp files in it say what is there already.
# Needs Python 3.11 or newer with venv, and a package registry that pip knows.

VENV   ?= .venv
# The first that runs: the name of a version manager's shim may stand for nothing.
PYTHON ?= $(shell for python in python3.11 python3; do $$python -c '' 2>/dev/null && echo $$python && break; done)
# Further arguments of pytest, as in: make test ARGS='-k stdio -x'
ARGS   ?=
# How many tests run side by side: more than there are processors, since most of them wait most of the time. Those that
# measure run by themselves, before: their one process prepares the modules of tests for all that follow.
WORKERS ?= 6
UV     ?= 0.13.9

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --require-hashes
SOURCES := src tests benchmarks

# Hundreds of processes of ours start in the tests; without bytecode each of them compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check format lint types lock manual clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \(make .*\)/\1/p' $(firstword $(MAKEFILE_LIST))
	@echo "also: make format | lint | types | lock | manual | clean"

demo: $(VENV)/.runtime
	@exec $(BIN)/mcpvisor demo

test: $(VENV)/.dev
	@status=0; for phase in --alone=only "--alone=without -n $(WORKERS)"; do \
	  $(BIN)/pytest $$phase $(ARGS) || { status=$$?; [ $$status = 1 ] || exit $$status; }; \
	done; exit $$status

check: lint types test

format: $(VENV)/.dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# The newest versions that pyproject.toml allows, for every platform and Python it names.
lock: $(VENV)/.uv
	cd $(CURDIR) && for set in runtime:build dev:dev; do \
	  $(abspath $(BIN))/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    pyproject.toml --group $${set#*:} --output-file requirements/$${set%:*}.lock || exit 1; \
	done

# The manual page and the completions of shells, which are installed below a prefix.
manual: $(VENV)/.runtime
	$(BIN)/python -m mcpvisor.daemon.cli.manual data

clean:
	rm -rf .venv .venv-* .node dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps

$(VENV)/.created:
	@$(or $(PYTHON),python3) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1)' || { \
	  echo "mcpvisor needs Python 3.11 or newer, and $(or $(PYTHON),python3) is not: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: requirements/runtime.lock pyproject.toml | $(VENV)/.created
	@echo "installing what mcpvisor runs on into $(VENV)"
	@$(INSTALL) --requirement requirements/runtime.lock
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.runtime
	@echo "installing what the tests need into $(VENV)"
	@$(INSTALL) --requirement requirements/dev.lock
	@touch $@

$(VENV)/.uv: | $(VENV)/.created
	@$(PIP) install -qq uv==$(UV)
	@touch $@

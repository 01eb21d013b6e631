# Every target sets up .venv in this folder by itself: with uv where it is there, with venv + pip where not.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PYTEST_ARGS ?=

CLIENTS := .venv-clients
DATASETS := .venv-datasets

.PHONY: help demo test test-clients test-datasets client-table check fmt bench screenshots setup lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP)  ## make .venv and install the project into it

$(STAMP): pyproject.toml requirements-dev.lock
	@echo "setting up $(VENV) (once) ..."
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . ; \
	fi
	@touch $(STAMP)

demo: $(STAMP)  ## an agent is killed three times and pays for nothing twice; a mail is held, edited, and sent once
	@$(BIN)/agentstate demo

test: $(STAMP)  ## all tests that need no key and no system service
	$(BIN)/python -m pytest -n auto --dist loadgroup $(PYTEST_ARGS)

$(CLIENTS)/.ready: pyproject.toml
	@echo "setting up $(CLIENTS) (once; CrewAI is large) ..."
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check 'crewai>=1.15.30,<1.16'
	@if command -v npm >/dev/null 2>&1; then npm install --loglevel=error --no-fund --no-audit --prefix $(CLIENTS) openai@6; fi
	@touch $@

test-clients: $(STAMP) $(CLIENTS)/.ready  ## real SDKs, frameworks and coding agents, each in its own environment
	-@$(BIN)/python -m tests.clients.matrix.environments
	-@if command -v npm >/dev/null 2>&1; then $(BIN)/python -m tests.clients.matrix.node_environments; fi
	-@$(BIN)/python -m tests.clients.conformance.environment
	$(BIN)/python -m pytest tests/clients -n auto --dist loadgroup $(PYTEST_ARGS)

$(DATASETS)/.ready: pyproject.toml
	@echo "setting up $(DATASETS) (once; torch is large) ..."
	@$(PYTHON) -m venv $(DATASETS)
	@$(DATASETS)/bin/python -m pip install --quiet --disable-pip-version-check 'datasets>=5,<6' pytest
	-@$(DATASETS)/bin/python -m pip install --quiet --disable-pip-version-check 'trl>=1.16,<2' jinja2
	@touch $@

test-datasets: $(STAMP) $(DATASETS)/.ready  ## exports are loaded by datasets and rendered and trained on by TRL
	$(BIN)/python -m tests.datasets.made $(DATASETS)/made
	DATASETS_MADE=$(CURDIR)/$(DATASETS)/made $(DATASETS)/bin/python -m pytest -p no:cacheprovider --noconftest tests/datasets

client-table: $(STAMP)  ## every client killed at every point (an hour); writes docs/reference/clients.md
	@$(BIN)/python -m tests.clients.matrix.environments
	@if command -v npm >/dev/null 2>&1; then $(BIN)/python -m tests.clients.matrix.node_environments; fi
	@rm -rf .pytest_cache/matrix
	-AGENTSTATE_MATRIX=chains $(BIN)/python -m pytest tests/clients/matrix/test_matrix.py tests/clients/matrix/test_node_matrix.py
	$(BIN)/python -m tests.clients.matrix.table --collect

check: $(STAMP)  ## lint and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

fmt: $(STAMP)  ## format and sort imports
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(STAMP)  ## added latency, replay, streaming, bytes stored: ratios from one interleaved run
	$(BIN)/python -m bench

screenshots: $(STAMP)  ## the pictures in docs/images, taken anew (needs chromium)
	$(BIN)/python -m scripts.screenshots

lock:  ## renew the pinned, hashed requirements from pyproject.toml (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --group dev --extra openai pyproject.toml -o requirements-dev.lock

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

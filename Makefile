# Two commands: `make run` starts the gateway, `make test` runs every check. Both set up .venv by themselves.

# A bare environment (env -i) has no PATH at all.
export PATH := $(if $(PATH),$(PATH),/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)

# The first Python that is new enough. Override it with `make PYTHON=/path/to/python3.12 run`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/local/bin/python3 /usr/bin/python3; do \
	if $$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: run test test-recordings check-format lint types imports tests coverage bench fix clean

# -- set-up -----------------------------------------------------------------------------------------------

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer with the venv module is needed; install it or set PYTHON=" >&2; exit 1; fi
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.server: $(VENV)/.created pyproject.toml
	@echo "installing the gateway"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server]'
	@touch $@

$(VENV)/.dev: $(VENV)/.server pyproject.toml
	@echo "installing the development tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

# -- the two commands -------------------------------------------------------------------------------------

# ARGS go to the command, e.g. make run ARGS='--port 9000 --backend trio'
run: $(VENV)/.server
	@exec $(BIN)/dragoman serve $(ARGS)

test: check-format lint types imports tests coverage

# -- the checks, one by one -------------------------------------------------------------------------------

check-format: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet .

lint: $(VENV)/.dev
	$(BIN)/ruff check --quiet .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

tests: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q $(ARGS)

coverage: $(VENV)/.dev
	$(BIN)/coverage report
	$(BIN)/python tests/module_coverage.py

# -- beside the checks ------------------------------------------------------------------------------------

# Against recorded answers of real providers, where ../shared or $DRAGOMAN_SHARED has them.
test-recordings: $(VENV)/.dev
	$(BIN)/pytest -q tests/recordings $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python tests/bench/bench_core.py $(ARGS)

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

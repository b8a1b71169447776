# Two commands: `make run` starts the gateway, `make test` runs every check. Both set up .venv by themselves.

# A bare environment (env -i) has no PATH at all.
export PATH := $(if $(PATH),$(PATH),/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)

# The first Python that is new enough. Override it with `make PYTHON=/path/to/python3.12 run`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/local/bin/python3 /usr/bin/python3; do \
	if $$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Every version that is installed, so that a checkout works tomorrow as it does today.
LOCK := tests/tools/constraints.txt
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
VERSIONS ?= 3.11 3.12 3.13 3.14

.PHONY: run test suite test-recordings test-versions lock check-format lint types imports tests coverage bench fix clean

# -- set-up -----------------------------------------------------------------------------------------------

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer with the venv module is needed; install it or set PYTHON=" >&2; exit 1; fi
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) --upgrade 'pip>=25.3'
	@touch $@

$(VENV)/.server: $(VENV)/.created pyproject.toml $(LOCK)
	@echo "installing the gateway"
	@$(BIN)/python $(PIP_INSTALL) --constraint $(LOCK) --build-constraint $(LOCK) --editable '.[server]'
	@touch $@

$(VENV)/.dev: $(VENV)/.server
	@echo "installing the development tools"
	@$(BIN)/python $(PIP_INSTALL) --constraint $(LOCK) --group dev
	@touch $@

# -- the two commands -------------------------------------------------------------------------------------

# ARGS go to the command, e.g. make run ARGS='--port 9000 --backend trio'
run: $(VENV)/.server
	@exec $(BIN)/dragoman serve $(ARGS)

test: check-format lint types imports tests coverage
	@command -v valkey-server >/dev/null || command -v redis-server >/dev/null || \
		echo "not tested: account stores on a server, because there is no valkey-server or redis-server (docs/state.md)"
	@command -v chromium >/dev/null || echo "not tested: web pages in a real browser, because there is no chromium"

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

# Before a release: the tests on every version of Python that is found, each in an environment of its own.
test-versions:
	@for version in $(VERSIONS); do \
		python=; \
		for each in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
			if $$each -c 'import sys, ensurepip, venv' 2>/dev/null; then python=$$each; break; fi; \
		done; \
		if [ -z "$$python" ]; then missing="$$missing $$version"; \
		elif $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=$$python suite; then passed="$$passed $$version"; \
		else failed="$$failed $$version"; fi; \
	done; \
	echo "Python: passed on$${passed:- none}; failed on$${failed:- none}; not found:$${missing:- none}"; \
	test -z "$$failed"

suite: $(VENV)/.dev
	$(BIN)/pytest -q $(ARGS)

# The newest versions that pyproject.toml allows. Run it with the oldest Python, which needs all backports.
lock:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python $(PIP_INSTALL) --upgrade 'pip>=25.3'
	.venv-lock/bin/python $(PIP_INSTALL) --editable '.[server]' --group dev
	(sed -n 1p $(LOCK); .venv-lock/bin/python -m pip freeze --exclude-editable) > $(LOCK).new
	mv $(LOCK).new $(LOCK)
	rm -rf .venv-lock

bench: $(VENV)/.dev
	$(BIN)/python tests/bench/bench_core.py $(ARGS)

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf .venv .venv-* build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

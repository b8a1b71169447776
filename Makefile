# `make help` lists the targets. All set up .venv by themselves.

# A bare environment (env -i) has no PATH at all.
export PATH := $(if $(PATH),$(PATH),/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)

# Each process of the tests would compile all modules and tests again.
unexport PYTHONDONTWRITEBYTECODE

# Succeeds with a Python that is new enough and makes environments.
SUFFICES := -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
# The first such Python. Override it with `make PYTHON=/path/to/python3.12 run`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 /usr/local/bin/python3 /usr/bin/python3; do \
	if $$p $(SUFFICES); then echo $$p; break; fi; done)

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# How many processes run tests at a time: auto is two more than cores, and JOBS=0 runs them in pytest's own.
JOBS ?= auto
# A file's tests stay together, because they share gateways and servers that take a second to start.
PYTEST = $(BIN)/pytest -n $(JOBS) --dist loadfile --durations 10
SECONDS ?= 60
MINUTES ?= 10
# Versions and hashes of everything that is installed. Only the project itself is built, because nothing locks what would
# build another package.
LOCKS := tests/tools/requirements
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
LOCKED := $(PIP_INSTALL) --require-hashes --only-binary :all: --requirement $(LOCKS)
# Follows each of the lines that install what is locked.
OR_ADVISE := || { echo "The packages could not be installed; pip says why above. Without a network, set PIP_INDEX_URL to an index" \
	"that this machine reaches, HTTPS_PROXY to a proxy, or PIP_FIND_LINKS to a folder of wheels, and run make again." >&2; exit 1; }
# Of `make lock`; --upgrade-package NAME moves one package only.
UPGRADE ?= --upgrade
RELEASE := .venv-release
DOCS := .venv-docs
API := .venv-api
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" $(RELEASE)/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --annotation-style line
VERSIONS ?= 3.11 3.12 3.13 3.14

.PHONY: run help test quick suite test-api test-recordings test-clients test-websocket test-browser pictures test-versions lock audit dist check-format lint types imports tests coverage coverage-server golden fuzz soak soak-day memory memory-websockets mutants bench bench-workers bench-plot growth lines map docs docs-site fix clean

# -- set-up -----------------------------------------------------------------------------------------------

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) $(SUFFICES); then \
		found="$$($(or $(PYTHON),python3) --version 2>/dev/null)"; \
		echo "Python 3.11 or newer with the modules venv and ensurepip is needed, and $(or $(PYTHON),python3) is $${found:-not there}: install it, or name one with make PYTHON=/path/to/python3.12" >&2; \
		exit 1; fi
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.server: $(VENV)/.created pyproject.toml $(LOCKS)/server.txt
	@echo "installing the gateway"
	@$(BIN)/python $(LOCKED)/server.txt $(OR_ADVISE)
	@$(BIN)/python $(PIP_INSTALL) --no-index --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.server $(LOCKS)/dev.txt
	@echo "installing the development tools"
	@$(BIN)/python $(LOCKED)/dev.txt $(OR_ADVISE)
	@touch $@

$(RELEASE)/.release: $(LOCKS)/release.txt
	@$(PYTHON) -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python $(LOCKED)/release.txt $(OR_ADVISE)
	@touch $@

$(API)/.api: $(LOCKS)/api.txt
	@$(PYTHON) -m venv --clear $(API)
	@$(API)/bin/python $(LOCKED)/api.txt $(OR_ADVISE)
	@touch $@

$(DOCS)/.docs: $(LOCKS)/server.txt $(LOCKS)/docs.txt
	@echo "installing what makes the site"
	@$(PYTHON) -m venv --clear $(DOCS)
	@$(DOCS)/bin/python $(LOCKED)/server.txt --requirement $(LOCKS)/docs.txt $(OR_ADVISE)
	@touch $@

# -- the commands -----------------------------------------------------------------------------------------

run: $(VENV)/.server ## start the gateway; ARGS='--port 9000 --backend trio'
	@exec $(BIN)/dragoman serve $(ARGS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

test: check-format lint types imports coverage tests ## every check and all tests
	@command -v valkey-server >/dev/null || command -v redis-server >/dev/null || \
		echo "not tested: account stores on a server, because there is no valkey-server or redis-server (docs/state.md)"
	@for each in nginx haproxy caddy; do command -v $$each >/dev/null || \
		echo "not tested: $$each in front of the gateway, because it is not installed (tests/edge)"; done
	@command -v chromium >/dev/null || echo "not tested: web pages in a real browser, because there is no chromium"

quick: check-format lint types imports ## what is known within seconds: format, lint, types, imports, tests of the core
	$(PYTEST) tests/sansio $(ARGS)

# -- the checks, one by one -------------------------------------------------------------------------------

check-format: $(VENV)/.dev ## is the code formatted?
	$(BIN)/ruff format --check --quiet .

lint: $(VENV)/.dev ## ruff's rules
	$(BIN)/ruff check --quiet .

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy

imports: $(VENV)/.dev ## the import contracts of pyproject.toml
	$(BIN)/lint-imports

coverage: $(VENV)/.dev ## the core's tests, which have to reach all of it
	$(PYTEST) --cov=dragoman --cov-report= tests/sansio
	$(BIN)/coverage report --include 'sansio/*' --fail-under 100

tests: $(VENV)/.dev ## all other tests; ARGS='-k word', JOBS=0 for one process
	$(PYTEST) --ignore tests/sansio $(ARGS)

# Not a part of `make test`, because coverage doubles the time of a test.
coverage-server: $(VENV)/.dev ## how much of the gateway its tests cover: 96 % are required
	$(PYTEST) --cov=dragoman_server --cov-report= tests/server $(ARGS)
	$(BIN)/coverage report --include 'server/*' --fail-under 96

# -- beside the checks ------------------------------------------------------------------------------------

# What becomes of every fixture (tests/golden/golden.py), and what comes out of each row (rows.py, core/rows.py).
golden: $(VENV)/.dev ## write the golden file and the rows again, and print what changed
	@WRITE_ROWS=1 $(BIN)/pytest -qs -m 'not process' $$(grep -rlE "rows[.](check|compare)" tests/sansio tests/server) >/dev/null
	@$(BIN)/python tests/golden/golden.py

# A gateway with the simulator behind it: what it answers fits /openapi.json (tests/api).
test-api: $(VENV)/.server $(API)/.api ## schemathesis against the gateway's own description
	$(BIN)/python tests/api $(BIN) $(API)/bin $(ARGS)

# Against recorded answers of real providers, where ../shared or $DRAGOMAN_SHARED has them.
test-recordings: $(VENV)/.dev ## tests against recorded responses of providers
	$(BIN)/pytest -q tests/recordings $(ARGS)

# Real coding agents and SDKs of Gemini, in front of the simulator; SDKs of OpenAI, Anthropic, Cohere, Voyage and Google at the
# endpoints that are relayed. A skipped one says how to install it.
test-clients: $(VENV)/.dev ## real coding agents in front of the simulator, and SDKs
	$(BIN)/pytest -q -rs tests/coding_agents tests/clients/test_relayed_calls.py $(ARGS)

# The server alone, with an application that sends back what it receives. It is skipped without wstest.
test-websocket: $(VENV)/.dev ## Autobahn's cases of WebSockets, half an hour
	$(BIN)/pytest -q -rs -o faulthandler_timeout=3600 tests/autobahn $(ARGS)

test-browser: $(VENV)/.dev ## the page, and pages of others, in a real Chromium; DRAGOMAN_SCREENSHOTS=DIR for pictures
	$(BIN)/pytest -q -rs tests/browser tests/edge/test_chromium.py $(ARGS)

PICTURES := live-light-1440 retried-dark-1440 request-light-1440 usage-light-1440 upstreams-dark-390

pictures: $(VENV)/.dev ## the pictures of the documentation, from the page in a real Chromium; needs pngquant
	DRAGOMAN_SCREENSHOTS=build/pictures $(BIN)/pytest -q tests/browser/test_pictures.py
	@mkdir -p docs/pictures
	@for each in $(PICTURES); do \
	  pngquant --force --strip --output docs/pictures/$$each.png 64 build/pictures/$$each.png || exit 1; done

# Before a release: the tests on every version of Python that is found, each in an environment of its own.
test-versions: ## all tests on every Python that is found
	@for version in $(VERSIONS); do \
		python=; \
		for each in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
			if $$each $(SUFFICES); then python=$$each; break; fi; \
		done; \
		if [ -z "$$python" ]; then missing="$$missing $$version"; \
		elif $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=$$python suite; then passed="$$passed $$version"; \
		else failed="$$failed $$version"; fi; \
	done; \
	echo "Python: passed on$${passed:- none}; failed on$${failed:- none}; not found:$${missing:- none}"; \
	test -z "$$failed"

suite: $(VENV)/.dev ## all tests, without the checks and without coverage
	$(PYTEST) $(ARGS)

# The newest versions that pyproject.toml allows, for every platform and Python, and the SBOM of what the wheel needs.
lock: $(RELEASE)/.release ## lock the newest versions that pyproject.toml allows; UPGRADE= keeps them
	$(COMPILE) $(UPGRADE) --extra server --group build -o $(LOCKS)/server.txt pyproject.toml
	$(COMPILE) $(UPGRADE) --extra server --group dev -c $(LOCKS)/server.txt -o $(LOCKS)/dev.txt pyproject.toml
	$(COMPILE) $(UPGRADE) --group api -o $(LOCKS)/api.txt
	$(COMPILE) $(UPGRADE) --group docs -c $(LOCKS)/server.txt -o $(LOCKS)/docs.txt
	$(COMPILE) $(UPGRADE) --group release -o $(LOCKS)/release.txt
	$(COMPILE) --all-extras -c $(LOCKS)/dev.txt -o $(LOCKS)/all.txt pyproject.toml
	$(RELEASE)/bin/python $(LOCKS)/sbom.py < $(LOCKS)/all.txt > $(RELEASE)/sbom.json
	mv $(RELEASE)/sbom.json $(LOCKS)/dragoman.cdx.json

# Known vulnerabilities of what is locked. It also fails if the service that lists them does not answer.
audit: $(RELEASE)/.release ## known vulnerabilities of what is locked
	@for lock in server dev api docs release; do \
		echo "known vulnerabilities in $(LOCKS)/$$lock.txt:"; \
		$(RELEASE)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
			--requirement $(LOCKS)/$$lock.txt $(ARGS) || failed=1; \
	done; \
	if [ -n "$$failed" ]; then \
		echo "audit: not passed. Vulnerabilities are listed above; \"could not be audited\" or a lost connection: nothing was checked" >&2; \
		exit 1; \
	fi

# The files of a release. The second build, of what is committed, differs in everything that must not matter.
dist: $(VENV)/.dev ## wheel and sdist, built twice and compared
	@rm -rf dist
	@env -u SOURCE_DATE_EPOCH $(BIN)/python -m hatchling build -d dist
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && git archive HEAD | tar -x -C "$$copy" && python=$$PWD/$(BIN)/python && \
		(cd "$$copy" && umask 077 && env -u SOURCE_DATE_EPOCH TZ=Asia/Tokyo LC_ALL=C "$$python" -m hatchling build -d dist >/dev/null) && \
		if ! diff -r dist "$$copy/dist"; then echo "dist: two builds differ, or something is not committed" >&2; exit 1; fi
	@sha256sum dist/*

# New inputs for the fuzzing tests, so many seconds for each; make test gives them the same few each time.
fuzz: $(VENV)/.dev ## new inputs for the fuzzing tests; SECONDS=60 for each
	FUZZ_SECONDS=$(SECONDS) $(BIN)/pytest -q -o faulthandler_timeout=$$(($(SECONDS) + 600)) \
		tests/fuzz tests/test_growth.py tests/server/proxying/test_loop_is_free.py $(ARGS)

# A mixed load with errors on each backend and clients that leave, and a table of what they cost.
soak: $(VENV)/.dev ## a mixed load with errors, for MINUTES=10
	$(BIN)/python tests/bench/soak.py --minutes $(MINUTES) $(ARGS)

# A day of requests in virtual time, with budgets, cool-downs and replaced keys, and what it leaves.
soak-day: $(VENV)/.dev ## a day of requests in virtual time, and what it leaves
	$(BIN)/python tests/bench/day.py $(ARGS)

# What open streams and large responses cost in memory. 5,000 streams need 10,100 descriptors (ulimit -n).
memory: $(VENV)/.dev ## what open streams and large responses cost
	$(BIN)/python tests/bench/memory.py $(ARGS)

# What 2,000 idle WebSockets cost, and 500 that stream.
memory-websockets: $(VENV)/.dev ## what open WebSockets cost
	$(BIN)/python tests/bench/websockets.py

# Random changes of the code, one at a time: which does no test catch? Hours; the head of the script has its options.
mutants: $(VENV)/.dev ## random changes of the code that no test catches; takes hours
	$(BIN)/python tests/tools/mutants.py $(ARGS)

# What core and gateway cost, as ratios to bare work (docs/performance.md). ARGS='--pair all': all pairs.
bench: $(VENV)/.dev ## what core and gateway cost, as ratios to bare work
	$(BIN)/python tests/bench $(ARGS)

# What two workers serve beside one, by their CPU time.
bench-workers: $(VENV)/.dev ## what two workers serve beside one
	$(BIN)/python tests/bench/workers.py $(ARGS)

# docs/performance.svg, from what `make bench ARGS=--record` has added to tests/bench/history.csv.
bench-plot: $(VENV)/.dev ## docs/performance.svg, from the history of `make bench`
	$(BIN)/python tests/bench/bench_plot.py

# How costs grow with what there is: keys, accounts, models, connections, the lengths of requests and responses.
growth: $(VENV)/.dev ## how costs grow with keys, accounts, models, connections and lengths
	$(BIN)/python tests/bench/growth.py $(ARGS)

lines: $(VENV)/.dev ## lines of code of each package, and what is long
	$(BIN)/python tests/tools/code_lines.py $(ARGS)

map: $(VENV)/.dev ## docs/map.md: the packages and what they import
	$(BIN)/python docs/_generate/package_map.py

docs: $(VENV)/.dev ## all pages and tables that follow from the code, and the man page
	$(BIN)/python docs/_generate

# docs/README.md is its index. Nothing is fetched while it is built or read.
docs-site: $(DOCS)/.docs ## the documentation as a site, with search, in build/site
	$(DOCS)/bin/sphinx-build --quiet --fail-on-warning --jobs auto --conf-dir docs/_generate/site --doctree-dir build/doctrees . build/site $(ARGS)
	@echo "open build/site/index.html"

fix: $(VENV)/.dev ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

clean: ## remove environments, caches and builds
	rm -rf .venv .venv-* build dist .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

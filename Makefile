# Toolgate's commands. A fresh clone needs python3 (3.11 or newer, with venv), make and pip's registry; nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MANAGE := $(BIN)/python manage.py
PYTEST := $(BIN)/python -m pytest
# Tests wait for processes and browsers as long as they compute; the slow ones stand last, and go to whoever is free.
SPREAD := -n 3 --dist worksteal
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
EMBEDDED := env DATABASE_URL= REDIS_URL=
# On PostgreSQL the keys are never made up; those of a throw-away test database protect nothing.
TEST_KEY := for-the-tests-only-for-the-tests-only-for-the-tests-only
TEST_SECRET_KEY := Zm9yLXRoZS10ZXN0cy1vbmx5LWZvci10aGUtdGVzdHM=
SERVICES := env DATABASE_URL="$${DATABASE_URL:-postgres://toolgate:toolgate@127.0.0.1:5432/toolgate}" \
	REDIS_URL="$${REDIS_URL:-redis://127.0.0.1:6379/0}" \
	SECRET_KEY="$${SECRET_KEY:-$(TEST_KEY)}" TOOLGATE_AUDIT_KEY="$${TOOLGATE_AUDIT_KEY:-$(TEST_KEY)}" \
	TOOLGATE_SECRET_KEYS="$${TOOLGATE_SECRET_KEYS:-$(TEST_SECRET_KEY)}"

# Agent frameworks whose requirements do not fit those of Toolgate; the tests run each in an environment of its own.
CLIENTS := tests/plans/mcp/clients

# The tiers of docs/development/testing.md. A later -m in ARGS replaces them. Every process of a run collects all tests
# that it is given, which takes 7 s, so the smaller tiers name their files, unless ARGS does.
only_of = $(if $(filter tests/%,$(ARGS)),,$(1))
FAST := -m "not (service or slow or layout or nightly)" --ignore tests/house
ON_SERVICES = $(call only_of,$$(grep -rlE "mark\.(db|service|slow)\b" tests --include "test_*.py" | sort)) \
	-m "(db or service or slow) and not (layout or nightly)"
PAGES = $(call only_of,tests/browser) -m "layout and not nightly"
# Races and kills need the machine to themselves, so they run one by one.
NIGHTLY := env TOOLGATE_NIGHTLY=1 TOOLGATE_REQUIRE_BROWSER=1 $(PYTEST) -q
SIDE_BY_SIDE := $(SPREAD) -m "not (slow or nightly)"
ONE_BY_ONE := -m "slow or nightly"

# More for the demo, pytest or the benchmarks, such as: make test ARGS="tests/plans -x"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo migrate test services test-services pages screenshots nightly check format bench bench-services lock clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: migrate ## set up, fill with demo people, tools and plans, serve on 127.0.0.1:8000 (ARGS="--port 8001")
	$(MANAGE) demo $(ARGS)

migrate: $(VENV)/runtime.stamp ## set up and bring the database up to date
	$(MANAGE) migrate --verbosity 0

test: $(VENV)/dev.stamp ## the fast tier: the whole product on SQLite
	$(EMBEDDED) $(PYTEST) $(SPREAD) $(FAST) $(ARGS)

services: ## start PostgreSQL and Redis unless they answer on localhost already
	scripts/services.sh

test-services: $(VENV)/dev.stamp services ## what differs on PostgreSQL and Redis, races, stories of processes
	$(SERVICES) $(PYTEST) $(SPREAD) $(ON_SERVICES) $(ARGS)

pages: $(VENV)/dev.stamp ## the layout of the pages in the browser, and the details of their scripts
	$(EMBEDDED) $(PYTEST) $(SPREAD) $(PAGES) $(ARGS)

screenshots: $(VENV)/dev.stamp ## pictures of every page and state in var/screenshots/index.html (DOCS=1: renew docs/screenshots)
	rm -rf var/screenshots
	$(EMBEDDED) TOOLGATE_TEST_SCREENSHOTS=var/screenshots $(PYTEST) $(SPREAD) -m browser \
		-k "test_pages or test_states or first_team" tests/browser/test_layout.py tests/browser/test_first_team.py $(ARGS)
	$(BIN)/python -m tests.browser.screenshots var/screenshots $(if $(DOCS),docs/screenshots)

# With ARGS that select a part, pytest may find no test in some of the four runs and ends with 5: that is no failure.
nightly: $(VENV)/dev.stamp services ## everything at full count with new seeds, on both databases; hours
	failed=0; ran=0; \
	run() { "$$@"; case $$? in 0) ran=1;; 5) ;; *) ran=1; failed=1;; esac; }; \
	run $(EMBEDDED) $(NIGHTLY) $(SIDE_BY_SIDE) $(ARGS); \
	run $(SERVICES) TOOLGATE_REQUIRE_SERVICES=1 $(NIGHTLY) $(SIDE_BY_SIDE) --ignore tests/house $(ARGS); \
	run $(EMBEDDED) $(NIGHTLY) $(ONE_BY_ONE) $(ARGS); \
	run $(SERVICES) TOOLGATE_REQUIRE_SERVICES=1 $(NIGHTLY) $(ONE_BY_ONE) $(ARGS); \
	[ $$ran = 1 ] && [ $$failed = 0 ]

check: $(VENV)/dev.stamp ## formatters, linters, imports, types, migrations, deploy check, house rules
	$(BIN)/ruff format --check --output-format concise .
	$(BIN)/ruff check .
	$(BIN)/djlint --check --lint --quiet templates
	$(BIN)/oxfmt --check static
	$(BIN)/oxlint --deny-warnings static
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(EMBEDDED) $(MANAGE) makemigrations --check --dry-run
	$(EMBEDDED) TOOLGATE_HTTPS=1 ALLOWED_HOSTS=toolgate.example $(MANAGE) check --deploy --fail-level WARNING
	$(EMBEDDED) $(PYTEST) -q tests/house

format: $(VENV)/dev.stamp ## apply the formatters and the linters' fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/djlint --reformat --quiet templates
	$(BIN)/oxlint --fix --quiet static
	$(BIN)/oxfmt static

bench: $(VENV)/dev.stamp ## the figures, one JSON object a line
	$(EMBEDDED) $(BIN)/python -m benchmarks $(ARGS)

bench-services: $(VENV)/dev.stamp services ## the figures again on PostgreSQL and Redis
	$(SERVICES) $(BIN)/python -m benchmarks $(ARGS)

lock: $(VENV)/dev.stamp ## resolve the locks again (UPGRADE=1 takes the newest versions)
	$(PIP_INSTALL) uv
	$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml --output-file requirements.lock
	$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml --group dev --constraint requirements.lock \
		--output-file requirements-dev.lock
	for client in $(CLIENTS)/*.in tests/plans/sources/servers/*.in tests/toolgate_client/frameworks/*.in benchmarks/peers/*.in; do $(LOCK) $(if $(UPGRADE),--upgrade) $$client --output-file $${client%.in}.lock; done

clean: ## remove the environment and every cache; data in var/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis .coverage staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/runtime.stamp: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Toolgate needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes -r requirements.lock
	@touch $@

# The development lock is held to the versions of the other one, so it only adds.
$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/runtime.stamp
	$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

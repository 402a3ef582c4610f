# Toolgate's commands. A fresh clone needs python3 (3.11 or newer, with venv), make and pip's registry; nothing else.

PYTHON ?= python3
BIN := .venv/bin
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

# One after the other: each of them wants the machine for itself.
CHAOS := TOOLGATE_CHAOS=full $(PYTEST) -q tests/chaos tests/races tests/cluster/test_restarts.py \
	$(addprefix tests/approvals/,test_mutations.py test_queues.py test_grant_races.py test_reminders.py) \
	tests/plans/test_room.py tests/plans/test_canaries.py

# New examples of what the suite checks with the same ones each time.
DRAWN := TOOLGATE_CHAOS=full $(PYTEST) -q -m hypothesis tests

# More for pytest or the benchmarks, such as: make test ARGS="tests/plans -x"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo migrate test services test-services chaos check format bench bench-services lock clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: migrate ## set up, fill with demo people, tools and plans, serve on 127.0.0.1:8000
	$(MANAGE) demo

migrate: .venv/runtime.stamp ## set up and bring the database up to date
	$(MANAGE) migrate --verbosity 0

test: .venv/dev.stamp ## the whole suite on the embedded default (SQLite, one process)
	$(EMBEDDED) $(PYTEST) $(SPREAD) $(ARGS)

services: ## start PostgreSQL and Redis unless they answer on localhost already
	scripts/services.sh

# Pages look the same there, source files too, and the figures' own test measures on SQLite.
test-services: .venv/dev.stamp services ## the suite again on PostgreSQL and Redis, without what is alike there
	$(SERVICES) $(PYTEST) $(SPREAD) -m "not page" --ignore tests/house --ignore tests/benchmarks $(ARGS)

chaos: .venv/dev.stamp services ## kills, cuts, lost Redis and races at full count, on both databases; an hour or two
	$(EMBEDDED) $(DRAWN); drawn=$$?; $(EMBEDDED) $(CHAOS) $(ARGS); embedded=$$?; \
		$(SERVICES) $(CHAOS) $(ARGS) && exit $$((drawn | embedded))

check: .venv/dev.stamp ## formatter, linter, types, migrations, deploy check, house rules
	$(BIN)/ruff format --check --output-format concise .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(EMBEDDED) $(MANAGE) makemigrations --check --dry-run
	$(EMBEDDED) TOOLGATE_HTTPS=1 ALLOWED_HOSTS=toolgate.example $(MANAGE) check --deploy --fail-level WARNING
	$(EMBEDDED) $(PYTEST) -q tests/house

format: .venv/dev.stamp ## let the formatter and the linter mend what they can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: .venv/dev.stamp ## the figures, one JSON object a line
	$(EMBEDDED) $(BIN)/python -m benchmarks $(ARGS)

bench-services: .venv/dev.stamp services ## the figures again on PostgreSQL and Redis
	$(SERVICES) $(BIN)/python -m benchmarks $(ARGS)

lock: .venv/dev.stamp ## resolve the locks again (UPGRADE=1 takes the newest versions)
	$(PIP_INSTALL) uv
	$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml --output-file requirements.lock
	$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml --group dev --constraint requirements.lock \
		--output-file requirements-dev.lock

clean: ## remove the environment and every cache; data in var/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage staticfiles var/test-*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/runtime.stamp: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Toolgate needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --require-hashes -r requirements.lock
	@touch $@

# The development lock is held to the versions of the other one, so it only adds.
.venv/dev.stamp: requirements-dev.lock .venv/runtime.stamp
	$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

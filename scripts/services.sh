#!/usr/bin/env bash
# Sees to it that PostgreSQL and Redis answer on localhost's standard ports: leaves what runs alone, starts what is
# installed, installs what is missing (as root, with apt-get). A DATABASE_URL or REDIS_URL to elsewhere is believed.
set -euo pipefail

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
is_here() { [[ -z "$1" || "$1" =~ (//|@)(127\.0\.0\.1|localhost)([:/]|$) ]]; }

give_up() {
    echo "$1 does not answer on 127.0.0.1:$2. Start it there, or set $3." >&2
    exit 1
}

install_package() {
    [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null || return 1
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

wait_for() {
    for _ in $(seq 150); do
        answers "$2" && return
        sleep 0.2
    done
    give_up "$@"
}

start_postgres() {
    command -v pg_ctlcluster >/dev/null || install_package postgresql || give_up PostgreSQL 5432 DATABASE_URL
    answers 5432 && return
    local version name
    read -r version name < <(pg_lsclusters --no-header | awk '$3 == 5432 { print $1, $2; exit }') \
        || give_up PostgreSQL 5432 DATABASE_URL
    pg_ctlcluster "$version" "$name" start || give_up PostgreSQL 5432 DATABASE_URL
}

start_redis() {
    command -v redis-server >/dev/null || install_package redis-server || give_up Redis 6379 REDIS_URL
    answers 6379 && return
    redis-server --daemonize yes --bind 127.0.0.1 --port 6379 --save "" --dir "${TMPDIR:-/tmp}" >/dev/null
}

as_superuser() {
    if psql -h 127.0.0.1 -U postgres -w -qtAc "SELECT 1" >/dev/null 2>&1; then
        psql -h 127.0.0.1 -U postgres -w -qtA "$@"
    else
        (cd / && runuser -u postgres -- psql -qtA "$@")
    fi
}

# The tests' own role and database, so that they need neither the superuser nor a change of who is trusted.
make_role_and_database() {
    PGPASSWORD=toolgate psql -h 127.0.0.1 -U toolgate -w -d toolgate -qtAc "SELECT 1" >/dev/null 2>&1 && return
    as_superuser -c "DO \$\$ BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'toolgate') THEN
            CREATE ROLE toolgate LOGIN CREATEDB PASSWORD 'toolgate';
        END IF;
    END \$\$"
    [[ -n "$(as_superuser -c "SELECT 1 FROM pg_database WHERE datname = 'toolgate'")" ]] \
        || as_superuser -c "CREATE DATABASE toolgate OWNER toolgate"
}

if is_here "${DATABASE_URL:-}"; then
    answers 5432 || start_postgres
    wait_for PostgreSQL 5432 DATABASE_URL
    [[ -n "${DATABASE_URL:-}" && "$DATABASE_URL" != *//toolgate:toolgate@* ]] || make_role_and_database
fi
if is_here "${REDIS_URL:-}"; then
    answers 6379 || start_redis
    wait_for Redis 6379 REDIS_URL
fi
echo "PostgreSQL and Redis are up."

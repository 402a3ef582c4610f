"""Invariants of the whole database, one module for each group."""

from importlib import import_module

GROUPS = (
    *("approvals", "audit_log", "client_runs", "evidence", "leaks"),
    *("liveness", "replay", "safety_levels", "structure"),
)
for name in GROUPS:
    import_module(f"plans.invariants.{name}")

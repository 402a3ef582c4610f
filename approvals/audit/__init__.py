"""Tamper-evident audit log: appending, checkpoints, verification, queries, export."""

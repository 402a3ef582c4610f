"""Tamper-evident audit log: appending, checkpoints, verification, queries, export.

It must not import policies, requests or reviews: entries are built from facts and contain ids and digests.
"""

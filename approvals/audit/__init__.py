"""Tamper-evident audit log: appending, checkpoints, verification, reading, export.

It must not know policies, requests or reviews: it keeps what the facts say, by ids and digests.
"""

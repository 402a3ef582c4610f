"""Rows and transactions of plans: the transaction that writes events, the hand-written SQL, and queries.

Knows plan documents, but nothing of how a step is executed.
"""

"""Storage of plans: plan transactions with their events, hand-written SQL, queries and privacy.

Knows plan documents, but not how a step is executed.
"""

"""Read models of the queue: saved views with counts, duplicates, precedents, insights. Never writes.

It must not know reviews as a process, grants, notifications, or pages and REST.
"""

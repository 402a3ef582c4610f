"""Read models of the queue: saved views with counts, duplicates, precedents, insights. Never writes.

It must not import reviews, grants, notifications, pages or REST.
"""

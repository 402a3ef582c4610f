"""Reviews: deciding requests one by one or in batches, editing them, and coordinating reviewers.

It must not know grants, the queue's views, notifications, or pages and REST.
"""

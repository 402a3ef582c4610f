"""Grants, the remembered approvals: making, matching, using and proposing them.

It must not know how requests are reviewed, the queue's views, notifications, or pages and REST.
"""

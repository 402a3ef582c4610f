"""Notifications: who is notified of what, the outbox, its delivery, and users' preferences.

It must not know how requests are reviewed, grants, the queue's views, or pages and REST.
"""

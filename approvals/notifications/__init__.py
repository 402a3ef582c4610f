"""Notifications: recipients of each event, the outbox, its delivery, and users' preferences.

It must not import reviews, grants, the queue, pages or REST.
"""

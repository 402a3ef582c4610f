"""Grants (remembered approvals): creating, matching, using and proposing them.

It must not import reviews, the queue, notifications, pages or REST.
"""

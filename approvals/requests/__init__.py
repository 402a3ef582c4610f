"""Life of an approval request: open, expire, resolve, consume exactly once.

It must not import reviews, grants, notifications, pages or REST.
"""

"""Life of an approval request: open, expire, resolve, consume exactly once.

It must not know how people review requests, what grants cover, who is notified, or pages and REST.
"""

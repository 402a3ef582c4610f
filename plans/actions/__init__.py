"""Actions of a person or a client on a plan, one module each: create, change, retry, skip, clone, answer and others.

Knows nothing of HTTP: the API and the pages call it.
"""

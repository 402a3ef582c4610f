"""Actions on plans, one module each: create, change, retry, skip, clone, give input and others.

They know nothing of HTTP; the API and the pages call them.
"""

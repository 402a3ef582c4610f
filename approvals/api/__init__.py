"""REST API of approvals, grants, policies, insights, notifications and the audit log.

It translates between JSON and the packages below, and must not know the pages. No module below may import it.
"""

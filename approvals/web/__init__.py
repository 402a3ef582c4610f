"""Pages of approvals, grants, policies, insights, notifications and the audit log: views, forms, page objects.

It translates between browsers and the packages below, and must not know the REST API. No module below may import it.
"""

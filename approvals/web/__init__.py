"""Pages of approvals, grants, policies, insights, notifications and the audit log: views, forms, page objects.

It must not import the REST API, and no module below may import it.
"""

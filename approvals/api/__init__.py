"""REST API of approvals, grants, policies, insights, notifications and the audit log.

Views and serializers translate between JSON and the packages below.
"""

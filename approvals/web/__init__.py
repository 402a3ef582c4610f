"""Pages of approvals, grants, policies, insights, notifications and the audit log."""

"""Who must say yes: policies, requests, reviews and the audit log."""

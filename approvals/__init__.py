"""Approvals by people: policies, requests, reviews, grants and the audit log."""

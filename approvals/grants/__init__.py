"""Grants (remembered approvals): creating, matching, using and proposing them."""

"""Policies: the rule that applies to a call and the users who may decide under it; editing and simulating policies.

It must not import `approvals.requests`: it evaluates calls and users, and stores only policies.
"""

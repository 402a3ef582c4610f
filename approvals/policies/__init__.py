"""Policies: which rule applies to a call and who may decide under it; changing, checking, simulating policies.

It must not know requests as a process: it answers questions about calls and people, and stores only policies.
"""

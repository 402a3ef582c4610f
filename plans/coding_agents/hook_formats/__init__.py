"""Hooks of coding agents: each module reads one client's bodies and writes answers in that client's own format."""

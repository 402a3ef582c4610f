"""Policies: the rule that applies to a call, the users who may decide under it, editing and simulation."""

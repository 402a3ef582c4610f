"""Agents: models that carry out a step by calling tools in a loop. Each call is a step that passes the gate."""

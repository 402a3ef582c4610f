"""Agents: models that carry out a step by calling tools in a loop, each call a step of its own through the gate."""

"""Adapters for agent frameworks, each importing its framework: their tools run only when Toolgate allows it."""

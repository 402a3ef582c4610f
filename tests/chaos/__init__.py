"""Faults injected into running processes: kills, cut connections, a database or a Redis that is away."""

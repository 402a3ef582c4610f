"""The threads of a process that run steps, with their leases and ticker; and workers over Procrastinate.

Knows when a step may run, and leaves what running means to `plans.engine`.
"""

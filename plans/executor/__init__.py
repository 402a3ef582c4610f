"""The executor of a process: threads that run steps, lease renewal, the ticker, and the Procrastinate worker.

Decides when a step runs; `plans.engine` defines what running a step means.
"""

"""The executor of a process: threads that run steps, lease renewal, the ticker, and the Procrastinate worker."""

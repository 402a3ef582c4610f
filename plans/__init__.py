"""What runs in which order: plans, steps, memory, events and the engine."""

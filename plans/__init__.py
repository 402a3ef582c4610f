"""Plans: steps with dependencies, memory and events, and the engine that executes them."""

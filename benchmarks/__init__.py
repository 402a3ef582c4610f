"""Speed measurements: one module for each figure, run as `python -m benchmarks [name…]`."""

"""How fast it is: one module a figure, each measured on what a user would run; `python -m benchmarks [name…]`."""

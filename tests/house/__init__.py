"""Rules of the house, run as tests: what no linter knows. Each rule is also shown to fail."""

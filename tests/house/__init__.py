"""House rules as tests that no linter covers. Each rule is also shown to fail."""

"""Life of an approval request: open, expire, resolve, consume exactly once."""

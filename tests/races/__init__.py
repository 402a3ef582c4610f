"""Real threads on real connections, every race run many times: one of them wins, and nothing is torn."""

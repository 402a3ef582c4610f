"""A tool as its author declares it. Knows how to call its handler, not when; no gate, plan or row."""

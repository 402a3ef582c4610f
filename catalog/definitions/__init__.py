"""Tools as their authors declare them. Knows how to call a handler, but no gate, plan or row."""

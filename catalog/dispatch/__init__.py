"""The pipeline of one call: check, gate, run. Knows no person, plan or row."""

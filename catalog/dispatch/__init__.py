"""The pipeline of a call: check, gate, run. Knows no person, plan or row."""

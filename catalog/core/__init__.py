"""Shared foundations of all three layers: JSON, time, transactions, files, the network. Knows no tool or row."""

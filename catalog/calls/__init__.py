"""Stored calls: encrypted secrets, masks of private data, statistics. Starts and ends no call."""

"""Calls as they are kept: encrypted secrets, masks of private data, statistics. Starts and ends no call."""

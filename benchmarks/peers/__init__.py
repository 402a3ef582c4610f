"""Peers that do the same work as Toolgate beside it, each in an environment of its own installed from its lock.

`python -m benchmarks` runs Toolgate and a peer in turn, round by round, so that a busy machine slows both of them.
"""

"""Other projects (peers) that do the same work as Toolgate, each in its own environment, installed from its lock file.

`python -m benchmarks` runs Toolgate and a peer alternately, so that a busy machine slows both of them.
"""

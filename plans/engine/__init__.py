"""The life of a step from ready to done: claim, gate, hold, start, finish, and recovery of lost workers."""

"""What must be true of the whole database at any time: one module for each group of invariants, found by their ids."""

from plans.invariants import deciding, limbo, numbering, replaying, trail

__all__ = ["deciding", "limbo", "numbering", "replaying", "trail"]

"""What must be true of the whole database at any time: one module for each group of invariants, found by their ids."""

from importlib import import_module

GROUPS = (
    *("acknowledged", "binding", "deciding", "effects", "leaks", "levels"),
    *("limbo", "limits", "numbering", "order", "replaying", "trail"),
)
for name in GROUPS:
    import_module(f"plans.invariants.{name}")

"""`validator_us`: validation of typical arguments by the schema alone."""

from benchmarks.validate import measure_validator as measure

__all__ = ["measure"]

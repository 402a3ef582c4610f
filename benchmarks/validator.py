"""`validator_us`: the arguments of a typical tool, judged by its schema alone."""

from benchmarks.validate import measure_validator as measure

__all__ = ["measure"]

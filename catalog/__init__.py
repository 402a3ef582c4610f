"""Tools, their versions and implementations, and the validation, running and recording of calls."""

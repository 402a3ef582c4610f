"""The home page: requests to answer, running and failed plans, agents today, the last days, and first steps."""

"""What a tool is, its versions and implementations, and how one call is validated, run and recorded."""

"""How an implementation is run; one module for each kind of implementation."""

"""`python -m toolgate`, the same as the command `toolgate`."""

from toolgate.command import main

main()

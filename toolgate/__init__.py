"""This installation: its folders, its command, and the check that all of its packages are Toolgate's own."""

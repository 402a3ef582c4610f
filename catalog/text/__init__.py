"""Texts compared, and searched for what hides or deceives. Pure; knows no tool, page or row."""

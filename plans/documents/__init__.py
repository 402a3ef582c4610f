"""A plan as text, before there are rows: parsing, checking, references and quick fixes.

Knows tools and agents by name only, and no rows of plans.
"""

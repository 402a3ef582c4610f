"""Plan documents before they are stored: parsing, checking, references and quick fixes.

The package knows tools and agents by name only and reads no plan rows.
"""

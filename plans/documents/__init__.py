"""Plan documents before they are stored: parsing, checking, references and quick fixes. Reads no plan rows."""

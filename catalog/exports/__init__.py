"""Tools in the forms that model providers read. Nothing here looks anything up."""

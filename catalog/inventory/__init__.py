"""Tools as rows: synchronised, versioned, overridden by administrators, found. Knows no page or endpoint."""

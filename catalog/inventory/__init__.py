"""Tools as database rows: synchronisation, versions, administrators' overrides, search. Knows no page or endpoint."""

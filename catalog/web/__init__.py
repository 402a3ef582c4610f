"""The catalog's pages: the list of tools, one tool, its versions, administrators' forms."""

"""Pages of the catalog: tool list, tool, versions, tokens, administrators' forms."""

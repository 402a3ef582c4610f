"""gram, the language of tool signatures and specifications: parsing, writing, conversion from JSON Schema."""

"""The to-do lists that agents keep with the planning tools, stored as plans of kind session."""

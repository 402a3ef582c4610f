"""Forms made from JSON Schema: rendered, read and filled without loss. Knows no tool."""

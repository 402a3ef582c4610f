"""Forms made from a JSON Schema: drawn, read and filled without loss. Knows no tool."""

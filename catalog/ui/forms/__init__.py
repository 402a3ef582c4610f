"""Forms made from JSON Schema: rendering, reading and filling them without losing input. Knows no tool."""

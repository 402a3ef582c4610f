"""Ways to declare tools beside `@tool`: classes, gram specifications, and functions with a JSON Schema."""

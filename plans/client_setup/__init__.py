"""Setting up coding agents so that they ask Toolgate before they run their own tools, and checking that they do."""

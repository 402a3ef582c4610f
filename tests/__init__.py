"""The suite: it mirrors the code; `house` holds the rules of the house, `browser` drives Chromium."""

"""The page of one plan: its overview, timeline, history, and the step that is open."""

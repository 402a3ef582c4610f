"""The tool that drafts: a request becomes the planner's answer and, checked and repaired, the document of a plan."""

"""Access to language models: provider, request, errors, tools offered and transcripts.

The planner and agents both use this package; it imports neither.
"""

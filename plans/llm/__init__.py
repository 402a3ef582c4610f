"""Access to language models: provider, request, errors, tools offered and transcripts."""

"""Secrets in text and JSON: detected, replaced by placeholders, restored, scrubbed. Knows no database."""

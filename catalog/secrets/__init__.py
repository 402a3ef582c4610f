"""Secrets in text and JSON: detection, redaction, restoration, scrubbing. Knows no database."""

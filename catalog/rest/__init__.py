"""Shared ground of all REST endpoints: authentication, strict fields, pages, problems. Knows no resource."""

"""Shared parts of the REST endpoints: authentication, strict fields, pagination and problem documents."""

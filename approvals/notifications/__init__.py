"""Notifications: recipients of each event, the outbox, its delivery, and users' preferences."""

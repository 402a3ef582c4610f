"""Envelopes: tasks approved once, whose calls then start without a review each."""

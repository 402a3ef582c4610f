"""Text comparison, and detection of hidden or deceptive text. Pure functions."""

"""Races between real threads on real connections: in each round exactly one side wins, and the state stays whole.

Round counts are small unless TOOLGATE_NIGHTLY=1. No test needs both sides to win: who wins is chance.
"""

"""Coding agents and other clients that run their tools themselves: they ask first, and report afterwards."""

"""Asking a language model: the provider, the request with its retries, the tools on offer, and transcripts.

Knows neither the planner nor agents, which both ask through it.
"""

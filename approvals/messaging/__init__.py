"""Addresses and senders of messages: mail, signed webhooks, chats.

A sender delivers one message to one address. The package must not import approval logic, users or the outbox.
"""

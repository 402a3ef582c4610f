"""Addresses and senders of messages: mail, signed webhooks, chats.

It delivers one message to one address. It must not know approvals, people or the outbox.
"""

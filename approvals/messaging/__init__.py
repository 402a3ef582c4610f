"""Addresses and senders of messages: mail, signed webhooks, chats."""

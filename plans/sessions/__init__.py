"""The to-do lists that agents keep with the planning tools, stored as plans of kind session.

The engine stores what a call sent to its list; nothing here knows the engine.
"""

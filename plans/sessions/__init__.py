"""The to-do lists that agents keep with the planning tools, stored as plans of kind session.

The engine calls this package to apply a call's commands; the package does not import the engine.
"""

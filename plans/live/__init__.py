"""Live updates: the feed of plans' events, long polling, WebSockets, and streamed model output.

Independent of the engine: `plans.store.transactions` notifies it of commits, and it reads the rows itself.
"""

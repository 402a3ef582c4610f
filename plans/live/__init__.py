"""Live updates: the feed of plans' events, long polling, WebSockets, and streamed model output.

Independent of the engine: it is notified of commits by `plans.store.transactions` and reads rows.
"""

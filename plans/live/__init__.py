"""News for those who wait: the feed of a plan's events, long polling, sockets, and streamed model output.

Does not know the engine: it hears of commits through `plans.store.transactions` and reads rows.
"""

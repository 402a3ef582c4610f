"""Live updates: the feed of plans' events, long polling, WebSockets, and streamed model output."""

"""Page of one plan: overview, timeline, history and the open step."""

"""REST endpoints of plans, drafts, sessions, agents and calls."""

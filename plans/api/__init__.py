"""The REST API of plans, sessions, agents and direct calls: views, serializers and paths. Knows no pages."""

"""The pages of plans, requests, agents and sessions, with their fragments and sockets. Knows no REST view."""

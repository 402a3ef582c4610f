"""Pages of plans, requests, agents and sessions, with their fragments and sockets. Imports no REST views."""

"""People and tokens: sign-in, roles, scopes. Knows no request body, page or plan."""

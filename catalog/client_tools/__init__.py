"""Tools that coding agents run themselves, such as Bash and Edit: facts for policies, and previews for reviewers.

Pure functions of what the client sent: nothing here reads a file, and links are unknown.
"""

"""The tools that ship with Toolgate; each module is one toolset and imports only the tool author's API."""

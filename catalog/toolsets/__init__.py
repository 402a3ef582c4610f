"""Tools shipped with Toolgate; each module is one toolset and imports only the public API for tool authors."""

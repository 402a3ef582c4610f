"""The catalog's REST endpoints: tools read, exported, validated and changed."""

"""Language of policies and grants: conditions, hours, stages, and their wording. No database access."""

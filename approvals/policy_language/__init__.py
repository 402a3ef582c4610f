"""Language of policies and grants: conditions, hours, stages, and their wording.

A pure library below the tables. It must not know people, calls in the database, or the ORM.
"""

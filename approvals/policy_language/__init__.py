"""Language of policies and grants: conditions, hours, stages, and their wording.

A pure library: it must not import models or the ORM.
"""

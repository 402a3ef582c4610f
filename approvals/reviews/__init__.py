"""Reviews: deciding requests one by one or in batches, editing them, and coordinating reviewers."""

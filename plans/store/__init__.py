"""Storage of plans: plan transactions with their events, hand-written SQL, queries and privacy."""

"""Read models of the queue: saved views with counts, duplicates, precedents, insights. Never writes."""

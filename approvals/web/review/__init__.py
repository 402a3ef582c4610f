"""The review desk: the inbox, one request in detail, its decision and edit forms, batches."""

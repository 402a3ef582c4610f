"""Review pages: the inbox, the detail of a request, its decision and edit forms, batches."""

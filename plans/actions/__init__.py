"""Actions on plans, one module each. They know nothing of HTTP; the API and the pages call them."""

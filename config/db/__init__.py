"""Django's database backends, adapted to Toolgate's workload. Know no table."""

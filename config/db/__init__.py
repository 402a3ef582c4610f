"""Django's database backends as Toolgate uses them. Know no table."""

"""What the demo shows: its people, its files and its plans; `manage.py demo` puts them together."""

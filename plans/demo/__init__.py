"""Contents of the demo: users, files and plans. `manage.py demo` creates them."""

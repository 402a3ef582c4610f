"""Pages of sign-in and of a person's own account: second factors, password, sessions. Built on django-allauth."""

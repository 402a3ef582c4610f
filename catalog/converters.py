"""What may stand in a path: names and ids as we make them, so that nothing else reaches a query."""

from django.urls import register_converter


class Name:
    """A tool's name or a public id."""

    regex = "[A-Za-z0-9_-]{1,64}"

    def to_python(self, value: str) -> str:
        """Return the name."""
        return value

    def to_url(self, value: str) -> str:
        """Return the name."""
        return value


class Number:
    """A whole number, short enough for any database."""

    regex = "[0-9]{1,9}"

    def to_python(self, value: str) -> int:
        """Return the number."""
        return int(value)

    def to_url(self, value: int) -> str:
        """Return its digits."""
        return str(value)


register_converter(Name, "name")
register_converter(Number, "number")

TOOL = "<name:name>"
PUBLIC_ID = "<name:public_id>"
STEP_ID = "<number:step_id>"

"""Path converters, registered when Django starts."""

from django.urls.converters import IntConverter


class NumberConverter(IntConverter):
    """`<number:…>`: a number of at most 18 digits, which fits each integer column; `int` accepts any length.

    Beyond that, SQLite raises OverflowError where a foreign key is compared with it.
    """

    regex = "[0-9]{1,18}"

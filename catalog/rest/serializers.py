"""Strict fields, bodies (JSON of at most 1 MiB) and queries: unknown fields are refused and values are not coerced."""

from collections.abc import Iterable, Mapping
from typing import IO, Any

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser

from catalog.core.canonical_json import MAX_JSON_BYTES, parse_json
from catalog.errors import TooLarge

MAX_TEXT_FIELD = 10_000
MAX_ID_LENGTH = 64


class StrictTextField(serializers.CharField):
    """A text that is kept exactly as sent. Numbers are refused; blank texts too, unless `allow_blank`."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("max_length", MAX_TEXT_FIELD)
        options.setdefault("trim_whitespace", False)
        super().__init__(**options)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """Refuse a text of white space wherever an empty text is refused."""
        if isinstance(data, str) and not self.allow_blank and not data.strip():
            self.fail("blank")
        return super().run_validation(data)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class OptionalTextField(StrictTextField):
    """An optional text. Missing, empty and null all become the empty text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, allow_blank=True, allow_null=True, default="", **options)

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        return (True, "") if data is None else super().validate_empty_values(data)


class StrictIntegerField(serializers.IntegerField):
    def to_internal_value(self, data: object) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictFloatField(serializers.FloatField):
    def to_internal_value(self, data: object) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictChoiceField(serializers.ChoiceField):
    """One of a set of words. The error message lists the words."""

    def __init__(self, choices: Iterable[str], **options: Any) -> None:
        words = list(choices)
        refusal = f"This must be one of {', '.join(filter(None, words))}{', or empty' if '' in words else ''}."
        super().__init__(choices=words, error_messages={"invalid_choice": refusal}, **options)


class BlankAsNullField(serializers.CharField):
    """A text that is serialized as null if it is blank."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)

    def to_representation(self, value: str) -> str | None:  # type: ignore[override] # DRF's is never null
        return value or None


class JsonObjectField(serializers.DictField):
    def to_internal_value(self, data: object) -> dict[Any, Any]:
        """Return the object unchanged. The caller validates it."""
        if not isinstance(data, dict):
            self.fail("not_a_dict", input_type=type(data).__name__)
        return data


class StrictSerializer(serializers.Serializer[Any]):
    """A request body; unknown fields are errors."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = {name for name, field in self.fields.items() if not field.read_only}
            unknown = sorted(str(name) for name in set(data) - known)
            if unknown:
                fields = f"Allowed fields: {', '.join(sorted(known))}." if known else "This body takes no fields."
                message = f"Unknown field. {fields}"
                raise ValidationError({name: [message] for name in unknown}, code="unknown_field")
        return super().to_internal_value(data)


class QuerySerializer(StrictSerializer):
    """A query string; values are converted by the fields, and repeated keys become lists."""

    def read(self, query: QueryDict) -> dict[str, Any]:
        lists = {name for name, field in self.fields.items() if isinstance(field, serializers.ListField)}
        self.initial_data = {name: values if name in lists else values[-1] for name, values in query.lists() if values}
        self.is_valid(raise_exception=True)
        checked: dict[str, Any] = self.validated_data
        return checked


class PageQuery(QuerySerializer):
    cursor = serializers.CharField(required=False, max_length=1000)
    page_size = serializers.IntegerField(default=50, min_value=1, max_value=200)


class StrictJSONParser(BaseParser):
    """Parser of `application/json` by the strict rules of `catalog.core.canonical_json`."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the parsed body. Raises MalformedJSON, and TooLarge, if possible before reading the body."""
        meta = parser_context["request"].META if parser_context else {}
        announced = int(meta.get("CONTENT_LENGTH") or 0)
        if announced > MAX_JSON_BYTES:
            raise TooLarge("The request body", size=announced, limit=MAX_JSON_BYTES)
        return parse_json(stream.read(MAX_JSON_BYTES + 1))


class MomentField(serializers.DateTimeField):
    def to_internal_value(self, value: object) -> Any:
        if not isinstance(value, str):
            self.fail("invalid", format="2026-11-21T22:00:00Z")
        return super().to_internal_value(value)

"""Base class of API views: JSON in and out, scopes per method, strict bodies and queries."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from django.contrib.auth.models import User
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from catalog.core.canonical_json import MAX_JSON_BYTES
from catalog.models import ApiToken
from catalog.rest.authentication import HasScope
from catalog.rest.pagination import PageCursor, PageParameters
from catalog.rest.serializers import PageQuery, QuerySerializer, StrictSerializer


class AlwaysJSON(BaseContentNegotiation):
    """Content negotiation that always selects JSON, so that an error never becomes 406."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        media_type = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == media_type), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, str(first.media_type)


class Endpoint(APIView):
    """Base class of API views. `required_scopes` lists scopes for each method; a request needs one of them."""

    permission_classes = (IsAuthenticated, HasScope)
    content_negotiation_class = AlwaysJSON
    required_scopes: ClassVar[Mapping[str, Sequence[str]]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and authorize, then require a JSON body. Sets the Content-Length that a chunked body lacks."""
        super().initial(request, *args, **kwargs)
        if not request.META.get("CONTENT_LENGTH") and request.method in ("POST", "PATCH", "PUT"):
            request.META["CONTENT_LENGTH"] = str(len(request.body))
        has_body = request.META.get("CONTENT_LENGTH") not in (None, "", "0")
        if has_body and AlwaysJSON().select_parser(request, self.get_parsers()) is None:
            raise UnsupportedMediaType(request.content_type)

    def perform_authentication(self, request: Request) -> None:
        """Cache the body before authentication, because Django's CSRF check consumes the stream."""
        announced = request.META.get("CONTENT_LENGTH") or "0"
        if announced.isdecimal() and int(announced) <= MAX_JSON_BYTES:
            request.body  # noqa: B018 (reading caches it)
        super().perform_authentication(request)

    @property
    def user(self) -> User:
        """The authenticated user; permissions exclude anonymous requests."""
        return cast(User, self.request.user)

    @property
    def token(self) -> ApiToken | None:
        auth = self.request.auth
        return auth if isinstance(auth, ApiToken) else None

    def body(self, serializer_class: type[StrictSerializer]) -> dict[str, Any]:
        serializer = serializer_class(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        checked: dict[str, Any] = serializer.validated_data
        return checked

    def query(self, serializer_class: type[QuerySerializer]) -> dict[str, Any]:
        return serializer_class().read(self.request.query_params)

    def page_query(self, query_class: type[PageQuery]) -> tuple[dict[str, Any], PageParameters]:
        query = self.query(query_class)
        return query, PageParameters(size=query.pop("page_size"), cursor=PageCursor.read(query.pop("cursor", "")))

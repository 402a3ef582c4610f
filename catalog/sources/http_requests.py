"""HTTP tools: arguments become one request, its response a result. Arguments cannot change where the request goes."""

import asyncio
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx2
from django.conf import settings
from opentelemetry.trace import SpanKind

from catalog.calls.vault import keyring
from catalog.core import tracing
from catalog.core.content_blocks import MAX_RESULT
from catalog.core.egress import AsyncGuardedTransport, RequestNotSent, ResponseTooLarge, no_cookies, retry_after
from catalog.core.lenient_json import cut_text
from catalog.errors import EffectUnknown, ToolgateError, ToolValidationError, UpstreamError, UpstreamUnavailable
from catalog.results import NO_MESSAGE, Preview, ResultWarning, UpstreamResult
from catalog.sources.definitions import visible_text
from catalog.sources.http_answers import MAX_READ, Body, answer_of, is_json, read_body
from catalog.sources.settings import MASK

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
BODYLESS = ("GET", "HEAD", "DELETE")
READING_METHODS = ("GET", "HEAD")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
JSON = "application/json"
MAX_REDIRECTS = 3
DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_SENT_URL = 50_000
"""Characters of a URL without the stored credentials; the HTTP client sends at most 65,536."""
CONNECT_SHARE = 0.5
"""Share of a call's time that connecting may take."""
BODY_MARGIN = 0.03
"""Share of a call's time that is left when reading a body is stopped: its beginning can still be stored."""
MAX_SHOWN_BODY = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The mapping of arguments to a request. Each dictionary maps the name of an argument to its name in the request.

    `url` has placeholders in its path, and in its query if an author wrote them there. `body` is the encoding of the
    body (`json`, `form` or none), and `media_type` the Content-Type of a JSON body. If `body_argument` is set, that
    argument is the whole body. Otherwise the body is an object of `body_fields`; if `body_optional`, no body is sent
    when all of them are missing. `secrets` is the ciphertext of headers that only this tool sends.

    `styles` lists the arguments that are not sent as `prepare` describes: arrays joined by a `comma`, `space` or
    `pipe`; objects as one pair for each member (`form`) or as `name[member]` (`deepObject`); any value as `json`.
    """

    method: str
    url: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    body_argument: str = ""
    body_fields: Mapping[str, str] = field(default_factory=dict)
    secrets: str = ""
    media_type: str = JSON
    styles: Mapping[str, str] = field(default_factory=dict)
    body_optional: bool = False

    def as_json(self) -> dict[str, Any]:
        stored = asdict(self)
        for name, usual in (("media_type", JSON), ("styles", {}), ("body_optional", False)):
            if stored[name] == usual:
                del stored[name]  # older definitions have none, and approvals bind their digests
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Operation":
        return cls(**stored)

    def own_headers(self) -> dict[str, str]:
        return dict(json.loads(keyring().decrypt(self.secrets))) if self.secrets else {}


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request ready to be sent. Displays of it mask `secret_headers` and `secret_query`."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    secret_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_query: Mapping[str, str] = field(default_factory=dict, repr=False)

    def target(self) -> str:
        """Return the URL to request, including the stored credentials in its query."""
        return _with_query(self.url, [f"{_quoted(name)}={_quoted(value)}" for name, value in self.secret_query.items()])

    def shown(self) -> str:
        lines = [f"{self.method} {_with_query(self.url, [f'{_quoted(name)}={MASK}' for name in self.secret_query])}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"{name}: {MASK}" for name in self.secret_headers]
        text = self.body.decode()
        if is_json(self.headers.get("Content-Type", "")) and text:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        if len(text) > MAX_SHOWN_BODY:
            missing = len(text) - MAX_SHOWN_BODY
            text = f"{text[:MAX_SHOWN_BODY]}…\n\n[{missing:,} more characters of this body: read them in the arguments]"
        return "\n".join(lines) + (f"\n\n{text}" if text else "")


def prepare(
    operation: Operation,
    arguments: Mapping[str, Any],
    headers: Mapping[str, str],
    query: Mapping[str, str] | None = None,
) -> PreparedRequest:
    """Return the request for validated arguments. Stored headers and query parameters win over arguments.

    Unless `Operation.styles` says otherwise, a text is sent unchanged, an array in the query as one pair for each item,
    and other values as JSON. Raises ToolValidationError for a value that cannot be sent in its place.
    """
    names = PLACEHOLDER.findall(operation.url)
    path_end = len(operation.url.partition("?")[0])

    def fill(match: re.Match[str]) -> str:
        name, in_path = match[1], match.start() < path_end
        value, style = arguments.get(name), operation.styles.get(name, "")
        items = value if style == "comma" and isinstance(value, list) else [value]
        texts = ["" if each is None else _as_text(each, style) for each in items]
        whole = ",".join(texts)
        if in_path and (not whole or any(part in (".", "..") for part in re.split(r"[/\\]", whole))):
            raise ToolValidationError(
                f"The parameter '{name}' cannot be part of a path: it is empty, or contains '.' or '..'."
            )
        if in_path:
            _refuse_control_characters(name, whole)
        return ",".join(map(_quoted, texts))

    url = PLACEHOLDER.sub(fill, operation.url)
    secret_query = dict(query or {})
    url = _with_query(url, _query_pairs(operation, arguments, {*names}, {*secret_query}))
    if len(url) > MAX_SENT_URL:
        message = f"The address would have {len(url):,} characters; at most {MAX_SENT_URL:,} are sent"
        raise ToolValidationError(f"The parameters in path and query are too long. {message}.")
    stored = {**headers, **operation.own_headers()}
    reserved = {header.lower() for header in stored}
    sent = {}
    for name, wire in operation.headers.items():
        value, style = arguments.get(name), operation.styles.get(name, "")
        if value is None or wire.lower() in reserved:
            continue
        items = value if style == "comma" and isinstance(value, list) else [value]
        sent[wire] = text = ",".join(_as_text(each, style) for each in items)
        _refuse_control_characters(name, text)
        if not text.isascii() or text != text.strip():
            raise ToolValidationError(
                f"The parameter '{name}' is sent as a header: use only ASCII characters, and no space at its start or "
                "end."
            )
    body, kind = _body(operation, arguments)
    if kind and "content-type" not in reserved:
        sent["Content-Type"] = kind
    return PreparedRequest(operation.method, url, sent, body, stored, secret_query)


SEPARATORS = {"comma": ",", "space": "%20", "pipe": "%7C"}
"""Separators of the items of an array in a URL, by style."""


def _with_query(url: str, pairs: Sequence[str]) -> str:
    return url + ("&" if "?" in url else "?") + "&".join(pairs) if pairs else url


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _as_text(value: Any, style: str = "") -> str:
    if isinstance(value, str) and style != "json":
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refuse_control_characters(name: str, text: str) -> None:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ToolValidationError(f"The parameter '{name}' contains a control character.")


def _query_pairs(
    operation: Operation, arguments: Mapping[str, Any], in_url: Collection[str], reserved: Collection[str]
) -> list[str]:
    """Return the query as encoded `name=value` pairs. Names in `reserved` are left out: stored credentials use them."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        wire, style = operation.query.get(name), operation.styles.get(name, "")
        if wire is None or name in in_url or value is None:
            continue
        if style in SEPARATORS and isinstance(value, list):
            pairs += [(wire, SEPARATORS[style].join(_quoted(_as_text(each)) for each in value))] if value else []
        elif style in ("form", "deepObject") and isinstance(value, Mapping):
            members = {key: each for key, each in value.items() if each is not None}
            if any(isinstance(each, list | dict) for each in members.values()):
                raise ToolValidationError(f"The members of the parameter '{name}' cannot be arrays or objects.")
            pairs += [
                (key if style == "form" else f"{wire}[{key}]", _quoted(_as_text(each))) for key, each in members.items()
            ]
        else:
            items = value if isinstance(value, list) and style != "json" else [value]
            pairs += [(wire, _quoted(_as_text(each, style))) for each in items if each is not None]
    return [f"{_quoted(wire)}={text}" for wire, text in pairs if wire not in reserved]


def _body(operation: Operation, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
    if not operation.body:
        return b"", ""
    if operation.body_argument:
        if operation.body_argument not in arguments:
            return b"", ""
        value = arguments[operation.body_argument]
    else:
        value = {wire: arguments[name] for name, wire in operation.body_fields.items() if name in arguments}
        if operation.body_optional and not value:
            return b"", ""
    if operation.body == "form":
        if not isinstance(value, Mapping):
            raise ToolValidationError(
                f"The parameter '{operation.body_argument}' is sent as a form: use an object of the form's fields."
            )
        pairs = [
            (name, each)
            for name, values in value.items()
            for each in (values if isinstance(values, list) else [values])
        ]
        text = urlencode([(name, _as_text(each)) for name, each in pairs if each is not None])
        return text.encode(), "application/x-www-form-urlencoded"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), operation.media_type


def preview(request: PreparedRequest) -> Preview:
    """Return the exact request for reviewers, with secrets masked."""
    parts = urlsplit(request.url)
    return Preview(f"{request.method} {parts.netloc}{parts.path}", "text", after=request.shown())


async def send(source: str, request: PreparedRequest, timeout: float) -> UpstreamResult[Any]:
    """Send a request and return its response as a result. Raises UpstreamUnavailable if nothing was sent.

    Raises EffectUnknown if the request may have been carried out, and UpstreamError for other failures.
    """
    parts = urlsplit(request.url)
    facts: dict[str, str | int] = {
        "source": source,
        "http.request.method": request.method,
        "server.address": parts.hostname or "",
    }
    with suppress(ValueError):
        facts["server.port"] = parts.port or DEFAULT_PORTS.get(parts.scheme, 443)
    with tracing.span(request.method, facts, kind=SpanKind.CLIENT):  # the path and the query hold arguments
        try:
            return await _send(source, request, timeout)
        except ToolgateError as error:
            tracing.fail_span(error.kind)
            raise


async def _send(source: str, request: PreparedRequest, timeout: float) -> UpstreamResult[Any]:
    try:
        response, body = await _exchange(request, timeout)
    except RequestNotSent as error:
        if error.again:
            raise UpstreamUnavailable(str(error)) from None
        raise UpstreamError(str(error), "egress_refused") from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
        raise UpstreamUnavailable(f"{source} cannot be reached.") from None
    except TimeoutError:
        message = f"{source} did not answer within {timeout:g} seconds. Its timeout is a setting of the source."
        raise UpstreamError(message, "timeout") from None
    except ResponseTooLarge as error:  # it is compressed, so nothing of it was read
        if error.status is None or not 200 <= error.status < 300:
            raise UpstreamError(f"{source} sent an answer that cannot be read: {error}", "upstream_too_large") from None
        return UpstreamResult(NO_MESSAGE, None, warnings=[ResultWarning("cut", f"{error} Nothing of it was kept.")])
    except httpx2.TransportError:
        raise EffectUnknown(f"The connection to {source} broke before it answered.") from None
    except (httpx2.InvalidURL, UnicodeError):
        raise UpstreamError(f"The address of {source} is invalid.", "upstream_refused") from None
    tracing.add_span_attributes(**{"http.response.status_code": response.status_code})
    return _result(source, request, response, body)


async def _exchange(request: PreparedRequest, seconds: float) -> tuple[httpx2.Response, Body]:
    """Send a request, follow redirects within its origin, and return the last answer and its body.

    Connecting has a shorter limit, to tell an unreachable server from one that does not answer. Raises TimeoutError if
    no status arrives within `seconds`; a body that takes longer is cut.
    """
    method, url, body = request.method, request.target(), request.body
    traced = tracing.trace_headers() if settings.TOOLGATE_TRACE_HTTP_TOOLS else {}
    limits = httpx2.Timeout(None, connect=seconds * CONNECT_SHARE, pool=seconds * CONNECT_SHARE)
    ends = asyncio.get_running_loop().time() + seconds
    for _ in range(MAX_REDIRECTS + 1):
        sent = _http_client().build_request(
            method,
            url,
            content=body or None,
            headers={**traced, **request.headers, **request.secret_headers},
            timeout=limits,
        )
        try:
            async with asyncio.timeout_at(ends):
                response = await _http_client().send(sent, stream=True)
        except (RequestNotSent, httpx2.TransportError, httpx2.InvalidURL, UnicodeError):
            if method != request.method:  # the request itself was answered with 303
                raise httpx2.ReadError("The server of a redirect did not answer.") from None
            raise
        try:
            location = response.headers.get("Location", "") if response.has_redirect_location else ""
            try:
                target = urljoin(url, location) if location else ""
                origin = urlsplit(target)[:2]
            except ValueError:
                target = ""
            may_follow = bool(target) and origin == urlsplit(request.url)[:2]
            if may_follow and response.status_code == 303:
                method, body = "GET", b""
            elif not may_follow or (method not in READING_METHODS and response.status_code not in (307, 308)):
                return response, await read_body(response, ends - seconds * BODY_MARGIN)
            url = target
        finally:
            await response.aclose()
    return response, Body(b"", "", 0)


_clients: dict[int, httpx2.AsyncClient] = {}


def _http_client() -> httpx2.AsyncClient:
    """Return the HTTP client of this process: its connections are reused, as is its TLS context, built in 20 ms."""
    if os.getpid() not in _clients:
        _clients.clear()
        _clients[os.getpid()] = httpx2.AsyncClient(
            transport=AsyncGuardedTransport(max_bytes=2 * MAX_READ),  # `read_body` cuts earlier
            timeout=None,
            trust_env=False,
            headers={"User-Agent": "Toolgate"},
            cookies=no_cookies(),
        )
    return _clients[os.getpid()]


GATEWAY_FAILURES = frozenset({502, 503, 504})
"""Statuses of a gateway that may have passed the request on before it failed."""
SEE_OTHER_STATUSES = frozenset({301, 302, 303})
"""Statuses that servers also use to point to the result of a request that they have carried out."""
FAILURES: Mapping[int, tuple[str, str]] = {
    400: ("upstream_invalid", "refused the arguments"),
    401: ("upstream_denied", "did not accept the stored credential"),
    403: ("upstream_denied", "does not allow this"),
    404: ("upstream_not_found", "has no such resource"),
    409: ("upstream_conflict", "reports a conflict"),
    410: ("upstream_not_found", "has no such resource"),
    422: ("upstream_invalid", "refused the arguments"),
    429: ("upstream_rate_limited", "is rate-limiting requests"),
}


def _result(source: str, request: PreparedRequest, response: httpx2.Response, body: Body) -> UpstreamResult[Any]:
    """Return the result of a request from its last answer, after allowed redirects, or raise its error."""
    method = request.method
    if 200 <= response.status_code < 300:
        return answer_of(body, request.url)  # without stored credentials
    said = visible_text(cut_text(body.text, MAX_RESULT)) if body.is_text else ""
    answer = f" It answered: {said}" if said else ""
    if response.status_code in GATEWAY_FAILURES:
        raise EffectUnknown(
            f"A gateway of {source} failed ({response.status_code}) and may have passed the request on.{answer}"
        )
    if response.status_code >= 500 and method not in READING_METHODS:
        raise EffectUnknown(f"{source} failed ({response.status_code}) and may have carried the request out.{answer}")
    was_redirected = response.status_code in SEE_OTHER_STATUSES or response.request.method != method
    if method not in READING_METHODS and was_redirected:
        raise EffectUnknown(
            f"{source} redirected the request without a result ({response.status_code}) and may have carried it out."
        )
    usual = (
        ("upstream_failed", "failed") if response.status_code >= 500 else ("upstream_refused", "refused the request")
    )
    kind, words = FAILURES.get(response.status_code, usual)
    wait = retry_after(response.headers.get("Retry-After", ""))
    again = "" if wait is None else f" Try again after {wait} s."
    message = f"{source} {words} ({response.status_code}).{again}{answer}"
    raise UpstreamError(message, kind, http_status=response.status_code, retry_after=wait)

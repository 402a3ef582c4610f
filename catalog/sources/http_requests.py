"""HTTP tools: arguments become one HTTP request, and its response a result.

An operation fixes method, scheme, host and the shape of the path. Arguments fill placeholders of path and query, each
percent-encoded whole, or the body; they can never change where the request goes.
"""

import asyncio
import codecs
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx2

from catalog.calls.vault import keyring
from catalog.core.canonical_json import parse_json
from catalog.core.egress import AsyncGuardedTransport, RequestNotSent, ResponseTooLarge, no_cookies, retry_after
from catalog.errors import EffectUnknown, MalformedJSON, ToolValidationError, UpstreamError, UpstreamUnavailable
from catalog.results import Preview, ToolResult
from catalog.sources.definitions import visible_text
from catalog.sources.settings import MASK

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
BODYLESS = ("GET", "HEAD", "DELETE")
READING_METHODS = ("GET", "HEAD")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
JSON = "application/json"
MAX_REDIRECTS = 3
CONNECT_SHARE = 0.5
"""Part of a call's time that connecting may take."""
MAX_SHOWN_BODY = 20_000
CHARSET = re.compile(r';\s*charset\s*=\s*"?([A-Za-z0-9_.:-]+)', re.IGNORECASE)
CHARSETS = frozenset(
    {
        *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "koi8-r", "koi8-u"),
        *(f"iso8859-{part}" for part in range(1, 17)),
        *(f"cp{page}" for page in range(1250, 1259)),
        *("gb2312", "gbk", "gb18030", "big5", "euc_jp", "shift_jis", "iso2022_jp", "euc_kr"),
    }
)
"""Python's names of the character sets that responses are decoded with. Its other codecs include `hex` and `zlib`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The mapping of arguments to a request. Each dictionary maps an argument to its name in the request.

    `url` has the placeholders of the path, and of the query where an author wrote them there. `body` is the encoding of
    the body (`json`, `form` or none), and `media_type` the Content-Type of a JSON body. `body_argument` names the
    argument that is the whole body; without it the body is an object of `body_fields`. `secrets` is the ciphertext of
    headers that belong to this tool alone.
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

    def as_json(self) -> dict[str, Any]:
        """Return the operation as stored in a definition."""
        stored = asdict(self)
        if self.media_type == JSON:
            del stored["media_type"]  # older definitions have none, and approvals bind their digests
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Operation":
        """Return a stored operation."""
        return cls(**stored)

    def own_headers(self) -> dict[str, str]:
        """Return the decrypted headers of this tool alone."""
        return dict(json.loads(keyring().decrypt(self.secrets))) if self.secrets else {}


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request as it would be sent; `secret_headers` are masked wherever it is shown."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    secret_headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def shown(self) -> str:
        """Return the request as text for reviewers."""
        lines = [f"{self.method} {self.url}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"{name}: {MASK}" for name in self.secret_headers]
        text = self.body.decode()
        if is_json(self.headers.get("Content-Type", "")) and text:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        return "\n".join(lines) + (f"\n\n{text[:MAX_SHOWN_BODY]}" if text else "")


def prepare(operation: Operation, arguments: Mapping[str, Any], headers: Mapping[str, str]) -> PreparedRequest:
    """Return the request for checked arguments; none of them replaces a stored header.

    Raises ToolValidationError for a value that a path or a header cannot hold.
    """
    names = PLACEHOLDER.findall(operation.url)
    path_end = operation.url.partition("?")[0]
    url = PLACEHOLDER.sub(
        lambda match: _encoded(match[1], arguments.get(match[1]), in_path=match.start() < len(path_end)), operation.url
    )
    pairs = _query_pairs(operation, arguments, {*names})
    if pairs:
        url += ("&" if "?" in url else "?") + urlencode(pairs, quote_via=quote)
    stored = {**headers, **operation.own_headers()}
    reserved = {header.lower() for header in stored}
    sent = {
        wire: _header_value(name, arguments[name])
        for name, wire in operation.headers.items()
        if name in arguments and wire.lower() not in reserved
    }
    body, kind = _body(operation, arguments)
    if kind and "content-type" not in reserved:
        sent["Content-Type"] = kind
    return PreparedRequest(operation.method, url, sent, body, stored)


def _encoded(name: str, value: Any, *, in_path: bool) -> str:
    text = _plain(name, value) if value is not None else ""
    parts = re.split(r"[/\\]", text)
    if in_path and (not text or any(part in (".", "..") for part in parts)):
        raise ToolValidationError(
            f"The parameter '{name}' cannot be part of a path: it is empty, or contains '.' or '..'."
        )
    return quote(text, safe="")


def _plain(name: str, value: Any) -> str:
    """Return a value as text on one line. Raises ToolValidationError."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        raise ToolValidationError(f"The parameter '{name}' contains a control character.")
    return text


def _header_value(name: str, value: Any) -> str:
    """Return a value as a header can hold it. Raises ToolValidationError."""
    text = _plain(name, value)
    if not text.isascii() or text != text.strip():
        raise ToolValidationError(
            f"The parameter '{name}' is sent as a header: use only ASCII characters, and no space at its start or end."
        )
    return text


def _query_pairs(operation: Operation, arguments: Mapping[str, Any], in_url: set[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        wire = operation.query.get(name)
        if wire is None or name in in_url or value is None:
            continue
        values = value if isinstance(value, list) else [value]
        pairs += [(wire, _plain(name, each)) for each in values if each is not None]
    return pairs


def _body(operation: Operation, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the body and its content type; both empty without a body."""
    if not operation.body:
        return b"", ""
    if operation.body_argument:
        if operation.body_argument not in arguments:
            return b"", ""
        value = arguments[operation.body_argument]
    else:
        value = {wire: arguments[name] for name, wire in operation.body_fields.items() if name in arguments}
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
        text = urlencode([(name, _plain(name, each)) for name, each in pairs if each is not None])
        return text.encode(), "application/x-www-form-urlencoded"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), operation.media_type


def preview(request: PreparedRequest) -> Preview:
    """Return what reviewers see: the exact request, with secret headers masked."""
    parts = urlsplit(request.url)
    return Preview(f"{request.method} {parts.netloc}{parts.path}", "text", after=request.shown())


async def send(source: str, request: PreparedRequest, timeout: float) -> ToolResult[Any]:
    """Send a request and return its response as a result.

    Raises UpstreamUnavailable if nothing was sent, EffectUnknown if the answer was lost, UpstreamError otherwise.
    """
    try:
        async with asyncio.timeout(timeout):
            response = await _exchange(request, timeout * CONNECT_SHARE)
    except RequestNotSent as error:
        if error.again:
            raise UpstreamUnavailable(str(error)) from None
        raise UpstreamError(str(error), "egress_refused") from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
        raise UpstreamUnavailable(f"{source} cannot be reached.") from None
    except TimeoutError:
        raise EffectUnknown(f"{source} did not answer within {timeout:g} seconds.") from None
    except ResponseTooLarge as error:
        raise UpstreamError(f"{source} sent too much: {error}", "upstream_too_large") from None
    except httpx2.TransportError:
        raise EffectUnknown(f"The connection to {source} broke before it answered.") from None
    except (httpx2.InvalidURL, UnicodeError):
        raise UpstreamError(f"The address of {source} is invalid.", "upstream_refused") from None
    return _result(source, request.method, response)


async def _exchange(request: PreparedRequest, connect_seconds: float) -> httpx2.Response:
    """Send a request, and again where it is redirected within its origin.

    Connecting has its own time, so that a server that cannot be reached is told apart from one that does not answer.
    """
    method, url, body = request.method, request.url, request.body
    limits = httpx2.Timeout(None, connect=connect_seconds, pool=connect_seconds)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response = await _http_client().request(
                method,
                url,
                content=body or None,
                headers={**request.headers, **request.secret_headers},
                timeout=limits,
            )
        except (RequestNotSent, httpx2.TransportError, httpx2.InvalidURL, UnicodeError):
            if method != request.method:  # the request itself was answered with 303
                raise httpx2.ReadError("The server of a redirect did not answer.") from None
            raise
        target = _redirect_target(url, response)
        if not target or urlsplit(target)[:2] != urlsplit(request.url)[:2]:
            return response
        if response.status_code == 303:
            method, body = "GET", b""
        elif method not in READING_METHODS and response.status_code not in (307, 308):
            return response
        url = target
    return response


def _redirect_target(url: str, response: httpx2.Response) -> str:
    """Return the URL that a response redirects to; empty if it names none or an invalid one."""
    location = response.headers.get("Location", "") if response.has_redirect_location else ""
    try:
        target = urljoin(url, location) if location else ""
        urlsplit(target)
    except ValueError:
        return ""
    return target


_clients: dict[int, httpx2.AsyncClient] = {}


def _http_client() -> httpx2.AsyncClient:
    """Return the client of this process: connections are kept, and building a TLS context takes 20 ms."""
    if os.getpid() not in _clients:
        _clients.clear()
        _clients[os.getpid()] = httpx2.AsyncClient(
            transport=AsyncGuardedTransport(),
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


def _result(source: str, method: str, response: httpx2.Response) -> ToolResult[Any]:
    """Return the result of a request of this method, whose redirects were followed as far as they may be."""
    if 200 <= response.status_code < 300:
        return ToolResult(message="OK", value=_value(source, response))
    said = visible_text(response_text(response)) if _is_text(response) else ""
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


def _value(source: str, response: httpx2.Response) -> Any:
    if not response.content:
        return None
    kind = _media_type(response)
    if is_json(kind):
        try:
            return parse_json(response.content)
        except MalformedJSON:
            raise UpstreamError(f"{source} sent JSON that cannot be read.", "upstream_malformed") from None
    if _is_text(response):
        return response_text(response)
    return {"content_type": kind or "unknown", "bytes": len(response.content)}


def response_text(response: httpx2.Response) -> str:
    """Return a response's body as text: in its own character set if that is one of CHARSETS, otherwise in UTF-8."""
    named = CHARSET.search(response.headers.get("Content-Type", ""))
    try:
        charset = codecs.lookup(named[1]).name if named else "utf-8"
    except LookupError:
        charset = "utf-8"
    return response.content.decode(charset if charset in CHARSETS else "utf-8", errors="replace")


def _media_type(response: httpx2.Response) -> str:
    return without_parameters(response.headers.get("Content-Type", ""))


def _is_text(response: httpx2.Response) -> bool:
    kind = _media_type(response)
    return kind.startswith("text/") or is_json(kind) or kind == "application/xml" or kind.endswith("+xml")


def without_parameters(media_type: str) -> str:
    """Return a media type in lower case, without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Return whether a media type, with or without parameters, is one of JSON."""
    plain = without_parameters(media_type)
    return plain == JSON or plain.endswith("+json")

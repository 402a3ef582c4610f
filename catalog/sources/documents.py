"""Fetching OpenAPI documents by URL, through the egress guard."""

import asyncio

import httpx2

from catalog.core.egress import AsyncGuardedTransport, RequestNotSent, ResponseTooLarge, describe_failure, no_cookies
from catalog.errors import SourceProblem, UpstreamUnavailable
from catalog.sources.http_answers import response_text
from catalog.sources.mcp_client import run_on_loop
from catalog.sources.settings import MAX_DOCUMENT, UpstreamSettings

MAX_REDIRECTS = 3


def fetch_document(settings: UpstreamSettings) -> str:
    """Return the text at the source's URL. Raises UpstreamUnavailable and SourceProblem."""

    async def fetch() -> httpx2.Response:
        transport = AsyncGuardedTransport(max_bytes=MAX_DOCUMENT)
        async with httpx2.AsyncClient(
            transport=transport, timeout=settings.timeout, trust_env=False, cookies=no_cookies()
        ) as client:
            client.max_redirects = MAX_REDIRECTS
            try:
                async with asyncio.timeout(settings.timeout):
                    # Credentials go to the typed address only: httpx2 removes Authorization at another origin, not
                    # other headers.
                    return await client.get(
                        settings.url, headers=dict(settings.headers), follow_redirects=not settings.headers
                    )
            except (RequestNotSent, ResponseTooLarge) as error:
                raise SourceProblem(f"The document could not be fetched: {error}") from None
            except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, UnicodeError) as error:
                raise UpstreamUnavailable(f"The document could not be fetched: {describe_failure(error)}.") from None

    response: httpx2.Response = run_on_loop(fetch(), settings.timeout + 5)
    if response.status_code != 200:
        raise SourceProblem(f"The document could not be fetched: its address answered {response.status_code}.")
    return response_text(response)

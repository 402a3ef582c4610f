"""Content blocks of calls over REST: named in the call, their bytes at an address of their own, never private ones."""

import base64

import pytest

from catalog.models import Call, CallBlob, Tool
from catalog.results import ToolResult
from tests.builders import act, call_of, make_plan, work_off
from tests.conftest import person
from tests.rest import ROOT, Rest, agent

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"


@pytest.fixture
def call(stage, ada) -> Call:
    """A call with text, a PNG that its tool calls SVG, and an SVG that its tool calls PNG."""
    stage.acts["safe"] = lambda value, context: ToolResult(
        "Drawn",
        {"width": 1},
        content=[
            {"type": "text", "text": "Here it is"},
            {"type": "image", "data": PNG, "mimeType": "image/svg+xml"},
            {"type": "image", "data": SVG, "mimeType": "image/png"},
        ],
    )
    return call_of(work_off(make_plan(ada, act(1))))


def test_blocks_are_named_and_their_bytes_served(call, ada):
    rest = Rest(ada)
    document = rest.get(f"calls/{call.public_id}/").json()
    text, png, svg = document["content"]
    assert document["warnings"] == []
    assert document["result"]["results"] == [{"width": 1}]
    assert text == {"type": "text", "text": "Here it is"}
    assert (png["bytes"], svg["bytes"]) == (len(PNG), len(SVG))
    assert png["url"].endswith(f"{ROOT}calls/{call.public_id}/content/1/")
    served = [rest.get(f"calls/{call.public_id}/content/{number}/") for number in (0, 1, 2, 3)]
    assert [each.status_code for each in served] == [404, 200, 200, 404]
    assert (served[1]["Content-Type"], served[1].content) == ("image/png", PNG)
    assert (served[2]["Content-Type"], served[2].content) == ("application/octet-stream", SVG)
    assert [each["Content-Disposition"].partition(";")[0] for each in served[1:3]] == ["inline", "attachment"]
    assert served[1]["Content-Disposition"].endswith(".png")  # and not .svg, as its tool says
    for each in served[1:3]:
        assert each["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in each["Content-Security-Policy"]
        assert "no-store" in each["Cache-Control"]


def test_private_content_stays_private(call, ada, client):
    Tool.objects.filter(name="safe").update(returns_private_data=True)
    vera = Rest(person("vera", "viewer"))
    document = vera.get(f"calls/{call.public_id}/").json()
    assert [each["type"] for each in document["content"]] == ["text", "image", "image"]
    assert "Here it is" not in str(document)
    assert not any("url" in each for each in document["content"])
    assert vera.get(f"calls/{call.public_id}/content/1/").status_code == 403
    assert Rest(ada).get(f"calls/{call.public_id}/content/1/").status_code == 200
    assert agent(ada).get(f"calls/{call.public_id}/content/1/").status_code == 404
    client.force_login(person("ben", "operator"))
    assert client.get(f"/calls/{call.public_id}/content/1/").status_code == 403


@pytest.mark.parametrize(
    "content",
    [
        "text",
        [{"type": "image", "mimeType": "image/png"}],
        [{"type": "image", "data": "no base64", "mimeType": "image/png"}],
        [{"type": "image", "data": b"x"}],
        [{"type": "hologram"}],
        [{"type": "text"}],
        [7],
        [{"type": "text", "text": "a" * 2_000_000}],
    ],
)
def test_content_that_cannot_be_stored_fails_the_call(stage, ada, content):
    stage.acts["safe"] = lambda value, context: ToolResult.ok(1, content=content)
    call = call_of(work_off(make_plan(ada, act(1))))
    assert (call.status, call.error_kind in ("result_not_json", "result_too_large")) == ("failed", True)
    assert not CallBlob.objects.exists()

"""OpenAPI documents become definitions of HTTP tools; what cannot become one is a problem, never an error."""

import json
import re

import pytest
import yaml

from catalog.core.canonical_json import json_size
from catalog.errors import SourceProblem, ToolValidationError
from catalog.schemas.acceptance import MAX_SCHEMA_BYTES
from catalog.sources import http_requests, openapi
from catalog.sources.definitions import catalog_names
from catalog.sources.http_requests import Operation
from catalog.sources.loading import judge_definition
from catalog.sources.openapi import list_operations
from catalog.sources.settings import UpstreamSettings
from tests.corpus import faults

SETTINGS = UpstreamSettings(pk=1, name="pets", kind="openapi")
OK = {"200": {"description": "OK"}}


def document(paths, **more):
    """Return the text of a document with these paths."""
    start = {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example"}],
    }
    return json.dumps({**start, "paths": paths, **more})


def operation(**fields):
    """Return an operation."""
    return {"responses": OK, **fields}


def parameter(name, place="query", kind="string", **more):
    """Return a parameter."""
    return {
        "name": name,
        "in": place,
        "schema": {"type": kind},
        **({"required": True} if place == "path" else {}),
        **more,
    }


def imported(text, **more):
    """Return the definitions of a document by their names; fail if one was left out."""
    listing = list_operations("pets", text, **more)
    assert listing.problems == ()
    assert [problem for each in listing.definitions if (problem := judge_definition("a", each, SETTINGS))] == []
    return {each.upstream: each for each in listing.definitions}


def request_of(definition, **arguments):
    """Return the request that a call would send."""
    assert definition.http is not None
    return http_requests.prepare(Operation.from_json(definition.http), arguments, {"Authorization": "Bearer s3cret"})


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
def test_operation_becomes_a_tool(write):
    body = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
        "required": ["name"],
    }
    text = document(
        {
            "/pets/{id}": {
                "parameters": [parameter("id", "path", "integer")],
                "get": operation(operationId="getPet", parameters=[parameter("fields", kind="array")]),
                "put": operation(
                    operationId="putPet",
                    requestBody={"required": True, "content": {"application/json": {"schema": body}}},
                ),
                "delete": operation(),
            }
        }
    )
    tools = imported(write(json.loads(text)))
    assert {name: each.safety_level for name, each in tools.items()} == {
        "getPet": "safe",
        "putPet": "cautious",
        "delete_pets_id": "dangerous",
    }
    assert (
        request_of(tools["getPet"], id=7, fields=["a", "b c"]).url
        == "https://pets.example/pets/7?fields=a&fields=b%20c"
    )
    sent = request_of(tools["putPet"], id=7, name="Rex", body_id=8)
    assert (sent.url, json.loads(sent.body)) == ("https://pets.example/pets/7", {"name": "Rex", "id": 8})
    assert tools["putPet"].input_schema["required"] == ["id", "name"]
    assert "s3cret" not in sent.shown() and "s3cret" not in repr(sent)


def test_schemas_of_version_3_0_are_modernized_and_cycles_are_kept():
    reference = {"$ref": "#/components/schemas/Node"}
    number = {"type": "integer", "nullable": True, "minimum": 0, "exclusiveMinimum": True, "maximum": 2**63}
    node = {"type": "object", "properties": {"next": reference, "n": number}}
    content = {"application/json": {"schema": {"type": "array", "items": reference}}}
    post = operation(operationId="n", requestBody={"content": content})
    text = document({"/n": {"post": post}}, openapi="3.0.3", components={"schemas": {"Node": node}})
    schema = imported(text)["n"].input_schema
    assert schema["$defs"]["Node"]["properties"] == {
        "next": {"$ref": "#/$defs/Node"},
        "n": {"type": ["integer", "null"], "exclusiveMinimum": 0},
    }


def test_arguments_never_change_where_a_request_goes():
    text = document(
        {"/a/{x}/b": {"get": operation(operationId="g", parameters=[parameter("x", "path"), parameter("q")])}}
    )
    tool = imported(text)["g"]
    hostile = ["", ".", "..", "../c", "a/../../c", "..\\c", "a\r\nHost: x", "\x00"]

    def check(value):
        with pytest.raises(ToolValidationError):
            request_of(tool, x=value)

    assert faults(check, hostile) == {}
    for value in ("a/b", "a?b=c", "a#b", "%2e%2e", "http://evil.example/", "@evil.example", "//evil.example"):
        url = request_of(tool, x=value, q=value).url
        assert url.startswith("https://pets.example/a/") and url.count("?") == 1 and "#" not in url
        assert url.partition("?")[0].count("/") == 5


@pytest.mark.parametrize(
    "given",
    [
        parameter("s", "cookie", required=True),
        {"$ref": "https://evil.example/p.json"},
        {"$ref": "#/components/parameters/Missing"},
    ],
)
def test_operation_that_cannot_be_called_is_left_out(given):
    text = document({"/a": {"get": operation(operationId="a", parameters=[given]), "post": operation(operationId="b")}})
    listing = list_operations("pets", text)
    assert [each.upstream for each in listing.definitions] == ["b"] and len(listing.problems) == 1


ARRAY = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object", "additionalProperties": {"type": "string"}}
SCALAR_OR_OBJECT = {"anyOf": [{"type": "integer"}, {"$ref": "#/components/schemas/Filter"}]}


@pytest.mark.parametrize(
    ("given", "is_imported"),
    [
        (parameter("p", schema=ARRAY), True),
        (parameter("p", schema=ARRAY, style="pipeDelimited", explode=True), True),
        (parameter("p", explode=False), True),
        (parameter("p", style="deepObject"), True),
        (parameter("p", "path", explode=True), True),
        (parameter("p", schema={}, explode=False), True),
        ({"name": "p", "in": "query", "content": {"application/json": {"schema": OBJECT}}}, True),
        (parameter("p", schema=ARRAY, explode=False), False),
        (parameter("p", schema={"items": {}}, style="spaceDelimited"), False),
        (parameter("p", schema={"type": ["array", "null"]}, explode=False), False),
        (parameter("p", schema=OBJECT), False),
        (parameter("p", schema=SCALAR_OR_OBJECT, style="deepObject", explode=True), False),
        (parameter("p", "path", schema=ARRAY), False),
        (parameter("p", "path", style="matrix"), False),
        (parameter("p", "header", schema=ARRAY), False),
        ({"name": "p", "in": "query", "content": {"application/json": {"schema": ARRAY}}}, False),
        (parameter("X Rate", "header"), False),
        (parameter("X-Größe", "header"), False),
    ],
)
def test_parameter_that_would_be_sent_in_another_form_is_left_out(given, is_imported):
    """A required one takes its operation along."""
    path = "/{p}" if given["in"] == "path" else "/"
    schemas = {"schemas": {"Filter": OBJECT}}
    text = document({path: {"get": operation(parameters=[{**given, "required": True}])}}, components=schemas)
    listing = list_operations("pets", text)
    assert (len(listing.definitions), len(listing.problems)) == ((1, 0) if is_imported else (0, 1))
    if given["in"] != "path":
        text = document({path: {"get": operation(parameters=[given])}}, components=schemas)
        listing = list_operations("pets", text)
        assert bool(listing.definitions[0].input_schema["properties"]) == is_imported == (not listing.problems)


def with_body(schema, *media_types):
    """Return a document whose operation `send` has a body with this schema."""
    content = {media_type: {"schema": schema} for media_type in media_types}
    return document(
        {"/a": {"patch": operation(operationId="send", requestBody={"required": True, "content": content})}}
    )


@pytest.mark.parametrize(
    ("media_types", "sent_as"),
    [
        (["application/merge-patch+json"], "application/merge-patch+json"),
        (["application/xml", "application/vnd.api+json; ext=bulk"], "application/vnd.api+json; ext=bulk"),
        (["application/json-patch+json", "application/json"], "application/json"),
        (["*/*"], "application/json"),
        (["application/*"], "application/json"),
        (["application/*+json"], "application/json"),
    ],
)
def test_json_is_sent_as_a_media_type_of_the_document(media_types, sent_as):
    tool = imported(with_body({"type": "object", "properties": {"x": {"type": "integer"}}}, *media_types))["send"]
    request = request_of(tool, x=1)
    assert request.headers == {"Content-Type": sent_as}
    assert f"\nContent-Type: {sent_as}\n" in request.shown() and request.shown().endswith('\n\n{\n  "x": 1\n}')
    # Definitions without one keep their digest, to which approvals are bound.
    assert ("media_type" in tool.http) == (sent_as != "application/json")


@pytest.mark.parametrize(
    ("schema", "is_imported"),
    [
        ({"oneOf": [{"type": "string"}, {"type": "object"}]}, True),
        ({}, True),
        (ARRAY, False),
        ({"oneOf": [{"type": "string"}, {"type": "array"}]}, False),
    ],
)
def test_operation_whose_form_is_never_an_object_is_left_out(schema, is_imported):
    listing = list_operations("pets", with_body(schema, openapi.FORM))
    assert (len(listing.definitions), len(listing.problems)) == ((1, 0) if is_imported else (0, 1))


@pytest.mark.parametrize(
    ("own", "base_url", "is_imported"),
    [
        ("https://uploads.example", "", False),
        ("https://uploads.example", "https://test.example", False),
        ("https://pets.example/", "", True),
        ("https://pets.example", "https://test.example", True),
        ("https://uploads.example", "https://uploads.example", True),
    ],
)
def test_operation_of_another_server_is_left_out(own, base_url, is_imported):
    servers = [{"url": own}]
    text = document({"/a": {"servers": servers, "get": operation()}, "/b": {"get": operation(servers=servers)}})
    listing = list_operations("pets", text, base_url=base_url)
    assert (len(listing.definitions), len(listing.problems)) == ((2, 0) if is_imported else (0, 2))


def test_problems_contain_only_visible_characters():
    invisible = "\ud800\x00\u202e"
    reference = {"$ref": f"#/{invisible}"}
    listing = list_operations(
        "pets",
        document({f"/a{invisible}": {"get": operation()}, "/b": {"get": operation(parameters=[reference])}}),
    )
    with pytest.raises(SourceProblem) as refused:
        list_operations("pets", document({invisible: {"get": operation(parameters=[{"name": 1}])}}))
    unusable = document({"/c": {"get": operation(parameters=[parameter("x\u202e", schema={"pattern": "("})])}})
    problem = judge_definition("c", list_operations("pets", unusable).definitions[0], SETTINGS)
    texts = [*listing.problems, str(refused.value), problem]
    assert len(texts) == 4 and all(text.isprintable() for text in texts)


def chain(count, size):
    """Return a document whose operation `large` uses a chain of schemas of this size, and `small` the last of them."""
    filler = {"type": "object", "x-ignored": "x" * 1000, "description": "d" * size}
    reference = "#/components/schemas/S{}"
    schemas = {f"S{n}": {**filler, "properties": {"n": {"$ref": reference.format(n + 1)}}} for n in range(count - 1)}
    schemas[f"S{count - 1}"] = filler

    def post(name, start):
        content = {"application/json": {"schema": {"type": "array", "items": {"$ref": reference.format(start)}}}}
        return {"post": operation(operationId=name, requestBody={"content": content})}

    return document({"/a": post("large", 0), "/b": post("small", count - 1)}, components={"schemas": schemas})


def test_operation_with_too_many_schemas_is_left_out_before_they_are_copied(monkeypatch):
    monkeypatch.setattr(openapi, "MAX_COPIED", MAX_SCHEMA_BYTES + 2000)
    listing = list_operations("pets", chain(count=80, size=1000))
    assert [each.upstream for each in listing.definitions] == ["small"] and len(listing.problems) == 1


def test_operation_with_schemas_just_within_the_limit_is_imported():
    tool = imported(chain(count=60, size=1000))["large"]
    assert 0.95 * MAX_SCHEMA_BYTES < json_size(tool.input_schema) <= MAX_SCHEMA_BYTES


def test_document_whose_operations_copy_too_many_schemas_is_refused(monkeypatch):
    monkeypatch.setattr(openapi, "MAX_COPIED", 10_000)
    with pytest.raises(SourceProblem):
        list_operations("pets", chain(count=10, size=1000))


def test_same_operation_id_twice_gets_another_name():
    listing = list_operations(
        "pets", document({"/a": {"get": operation(operationId="x"), "put": operation(operationId="x")}})
    )
    assert [each.upstream for each in listing.definitions] == ["x", "PUT /a"]


def test_operation_whose_other_name_is_taken_too_is_left_out():
    same = {"get": operation(operationId="GET /b")}
    listing = list_operations("pets", document({"/a": same, "/b": same, "/c": {"get": operation()}}))
    assert [each.upstream for each in listing.definitions] == ["GET /b", "get_c"] and len(listing.problems) == 1


def test_name_that_is_no_catalog_name_stays_readable():
    names = catalog_names("git", ["repos/get", "repos.get", "repos_get", "x" * 70], kept={}, taken=())
    assert [names["repos/get"], names["repos_get"]] == ["git__repos_get", "repos_get"]
    assert re.fullmatch("git__repos_get_[0-9a-f]{8}", names["repos.get"])
    assert re.fullmatch("git__x{50}_[0-9a-f]{8}", names["x" * 70])


def test_unusable_document_is_refused_in_words():
    deep = '{"openapi":"3.1.0","x":' + "[" * 200 + "]" * 200 + "}"
    bomb = "openapi: 3.1.0\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    many = document({f"/{n}": {"get": operation(operationId=f"o{n}")} for n in range(10_000)})
    relative = json.dumps({**json.loads(document({})), "servers": [{"url": "/v1"}]})
    local = json.dumps({**json.loads(document({})), "servers": [{"url": "file:///etc"}]})
    invalid = json.dumps({**json.loads(document({})), "servers": [{"url": "http://["}]})
    fragment = json.dumps({**json.loads(document({})), "servers": [{"url": "https://pets.example/#"}]})
    cases = [
        "",
        "x",
        "{}",
        '{"openapi": "2.0"}',
        '{"openapi": "3.1.0"}',
        deep,
        bomb,
        many,
        relative,
        local,
        invalid,
        fragment,
        "a: b: c",
        "[" * 5000,
    ]

    def check(text):
        with pytest.raises(SourceProblem):
            list_operations("pets", text)

    assert faults(check, cases) == {}


def test_relative_server_is_completed_by_the_address_of_the_document():
    text = json.dumps({**json.loads(document({"/a": {"get": operation(operationId="a")}})), "servers": [{"url": "v1"}]})
    tools = imported(text, url="https://api.example/docs/openapi.json")
    assert request_of(tools["a"]).url == "https://api.example/docs/v1/a"
    assert request_of(imported(text, base_url="https://other.example/")["a"]).url == "https://other.example/a"

"""OpenAPI documents become definitions of HTTP tools; what cannot become one is a problem, never an error."""

import json
import re

import pytest
import yaml

from catalog.core.canonical_json import json_size
from catalog.errors import SourceProblem, ToolValidationError
from catalog.schemas import compile_schema
from catalog.schemas.acceptance import MAX_SCHEMA_BYTES
from catalog.sources import http_requests, openapi_schemas
from catalog.sources.http_requests import Operation
from catalog.sources.loading import judge_definition
from catalog.sources.openapi import ImportSettings, list_operations
from catalog.sources.openapi_operations import FORM
from catalog.sources.settings import UpstreamSettings
from catalog.sources.tool_names import catalog_names
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
    listing = list_operations("pets", text, ImportSettings(**more))
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
NESTED = {"type": "object", "properties": {"a": ARRAY}}
SCALAR_OR_OBJECT = {"anyOf": [{"type": "integer"}, {"$ref": "#/components/schemas/Filter"}]}
SCALAR_OR_NESTED = {"anyOf": [{"type": "integer"}, {"$ref": "#/components/schemas/Nested"}]}
SCHEMAS = {"schemas": {"Filter": OBJECT, "Nested": NESTED}}


def in_json(schema):
    """Return a query parameter whose values are JSON."""
    return {"name": "p", "in": "query", "content": {"application/json": {"schema": schema}}}


def taking(given, **more):
    """Return a document whose operation `get` takes a parameter."""
    path = "/{p}" if given["in"] == "path" else "/"
    return document({path: {"get": operation(operationId="get", parameters=[given])}}, components=SCHEMAS, **more)


SENT = [
    (parameter("p", schema=ARRAY), ["a b", "c"], "/?p=a%20b&p=c"),
    (parameter("p", schema=ARRAY, style="pipeDelimited", explode=True), ["a", "b"], "/?p=a&p=b"),
    (parameter("p", schema=ARRAY, explode=False), ["a,b", "c"], "/?p=a%2Cb,c"),
    (parameter("p", schema={"type": ["array", "null"]}, explode=False), [1, True], "/?p=1,true"),
    (parameter("p", schema={"items": {}}, style="spaceDelimited"), ["a", "b"], "/?p=a%20b"),
    (parameter("p", schema=ARRAY, style="pipeDelimited"), ["a", "b"], "/?p=a%7Cb"),
    (parameter("p", schema=ARRAY, explode=False), [], "/"),
    (parameter("p", explode=False), "a,b", "/?p=a%2Cb"),
    (parameter("p", style="deepObject"), "a", "/?p=a"),
    (parameter("p", schema={}, explode=False), 7, "/?p=7"),
    (parameter("p", schema=OBJECT), {"a": "1", "b c": "&"}, "/?a=1&b%20c=%26"),
    (parameter("p", schema=SCALAR_OR_OBJECT, style="deepObject", explode=True), {"a": "1"}, "/?p%5Ba%5D=1"),
    (parameter("p", schema=SCALAR_OR_OBJECT, style="deepObject"), 7, "/?p=7"),
    (in_json(OBJECT), {"a": "1"}, "/?p=%7B%22a%22%3A%221%22%7D"),
    (in_json(ARRAY), ["a"], "/?p=%5B%22a%22%5D"),
    (in_json({"type": "string"}), "a", "/?p=%22a%22"),
    (parameter("p", schema={"type": "string", "nullable": True}), None, "/"),
    (parameter("p"), "select\n1\x00", "/?p=select%0A1%00"),
    (parameter("p", "path", explode=True), "a", "/a"),
    (parameter("p", "path", schema=ARRAY), ["a/b", "c"], "/a%2Fb,c"),
]


def test_parameter_is_sent_as_the_document_says():
    def check(given, value, target):
        assert request_of(imported(taking(given))["get"], p=value).url == f"https://pets.example{target}"

    assert faults(check, SENT) == {}


def test_array_in_a_header_is_joined():
    tool = imported(taking(parameter("X-Ids", "header", schema=ARRAY)))["get"]
    assert request_of(tool, **{"X-Ids": ["a", "b"]}).headers == {"X-Ids": "a,b"}
    assert request_of(tool, **{"X-Ids": None}).headers == {}
    with pytest.raises(ToolValidationError):
        request_of(tool, **{"X-Ids": ["a", "b\n"]})


UNSUPPORTED = [
    parameter("p", schema=OBJECT, explode=False),
    parameter("p", schema=SCALAR_OR_NESTED, style="deepObject", explode=True),
    parameter("p", schema=ARRAY, style="deepObject", explode=True),
    parameter("p", "path", style="matrix"),
    parameter("p", "path", schema=OBJECT),
    parameter("p", "header", schema=OBJECT),
    {"name": "p", "in": "query", "content": {"application/xml": {"schema": ARRAY}}},
    parameter("X Rate", "header"),
    parameter("X-Größe", "header"),
    parameter("p", "cookie"),
    parameter("p", "querystring"),
]


def test_parameter_that_cannot_be_sent_is_left_out_and_named():
    """A required one takes its operation along."""

    def check(given):
        listing = list_operations("pets", taking({**given, "required": True}))
        assert (len(listing.definitions), len(listing.problems)) == (0, 1)
        assert repr(given["name"]) in listing.problems[0] and given["in"] in listing.problems[0]
        if given["in"] != "path":
            listing = list_operations("pets", taking(given))
            assert listing.definitions[0].input_schema["properties"] == {} and len(listing.problems) == 1

    assert faults(check, UNSUPPORTED) == {}


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
    listing = list_operations("pets", with_body(schema, FORM))
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
    listing = list_operations("pets", text, ImportSettings(base_url=base_url))
    assert (len(listing.definitions), len(listing.problems)) == ((2, 0) if is_imported else (0, 2))


def test_problems_contain_only_visible_characters():
    invisible = "\ud800\x00\u202e"
    reference = {"$ref": f"#/{invisible}"}
    listing = list_operations(
        "pets",
        document({f"/a{invisible}": {"get": operation()}, "/b": {"get": operation(parameters=[reference])}}),
    )
    with pytest.raises(SourceProblem) as refused:
        list_operations("pets", json.dumps({"openapi": f"9{invisible}"}))
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
    monkeypatch.setattr(openapi_schemas, "MAX_COPIED", MAX_SCHEMA_BYTES + 2000)
    listing = list_operations("pets", chain(count=80, size=1000))
    assert [each.upstream for each in listing.definitions] == ["small"] and len(listing.problems) == 1


def test_operation_with_schemas_just_within_the_limit_is_imported():
    tool = imported(chain(count=60, size=1000))["large"]
    assert 0.95 * MAX_SCHEMA_BYTES < json_size(tool.input_schema) <= MAX_SCHEMA_BYTES


def test_document_whose_operations_copy_too_many_schemas_is_refused(monkeypatch):
    monkeypatch.setattr(openapi_schemas, "MAX_COPIED", 10_000)
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


def test_each_operation_stands_alone():
    wrong = {
        "/list": [],
        "/null": {"get": None},
        "/parameters": {"get": operation(parameters={})},
        "/parameter": {"get": operation(parameters=[{"in": "query"}])},
        "/schema": {"get": operation(parameters=[parameter("q", schema=[])])},
        "/content": {"post": operation(requestBody={"required": True, "content": []})},
        "/body": {"post": operation(requestBody=7)},
        "/required": {"post": operation(requestBody=json_body({"properties": {"a": {}}, "required": [{}]}))},
        "/servers": {"get": operation(servers="https://x.example")},
        "/circle": {"$ref": "#/paths/~1circle"},
        "/options": {"options": operation()},
        "/additional": {"additionalOperations": {"COPY": operation()}},
        "/deep": {"get": operation(parameters=[parameter("q", schema={"$ref": "#/components/schemas/S0"})])},
        "x/relative": {"get": operation()},
        "/type": {"get": operation(parameters=[parameter("q", kind="text")])},
    }
    right = {
        "/null-type": {"get": operation(operationId="null", parameters=[parameter("q", kind="null")])},
        "/shared": {"$ref": "#/paths/~1null-type", "x-note": []},
        "x-internal": [],
    }
    levels = {f"S{n}": {"items": {"$ref": f"#/components/schemas/S{n + 1}"}} for n in range(499)}
    text = document(
        {**wrong, **right},
        openapi="3.0.3",
        servers=[7, {"url": "https://pets.example"}],
        info=None,
        components={"schemas": {**levels, "S499": {}}},
    )
    listing = list_operations("pets", text)
    problems = [*listing.problems]
    problems += [problem for each in listing.definitions if (problem := judge_definition("a", each, SETTINGS))]
    assert [path for path in wrong if not any(path in each for each in problems)] == []
    assert len(problems) == len(wrong)
    assert [each.upstream for each in listing.definitions] == ["get_type", "null", "GET /shared"]


def test_thousands_of_broken_operations_leave_the_others():
    paths = {
        f"/{n}": {"get": operation(operationId=f"o{n}", parameters=[] if n % 5 == 0 else [7])} for n in range(5000)
    }
    listing = list_operations("pets", document(paths))
    assert (len(listing.definitions), len(listing.problems)) == (1000, 4000)


def json_body(schema, *, required=True):
    """Return the body of an operation."""
    return {"required": required, "content": {"application/json": {"schema": schema}}}


IDS = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "integer"}}}, "required": ["ids"]}


@pytest.mark.parametrize("method", ["get", "delete"])
def test_body_of_any_method_is_sent(method):
    path = {method: operation(operationId="o", requestBody=json_body(IDS))}
    tool = imported(document({"/items": path}))["o"]
    assert tool.input_schema["required"] == ["ids"]
    assert json.loads(request_of(tool, ids=[1]).body) == {"ids": [1]}


def test_optional_body_without_fields_is_not_sent():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    paths = {
        "/optional": {"delete": operation(requestBody=json_body(schema, required=False))},
        "/required": {"delete": operation(requestBody=json_body(schema))},
    }
    optional, required = imported(document(paths)).values()
    assert (request_of(optional).body, request_of(optional, a="x").body) == (b"", b'{"a":"x"}')
    assert request_of(required).body == b"{}" and "Content-Type" not in request_of(optional).headers


def accepts(tool, arguments):
    """Return whether a tool's schema accepts these arguments."""
    return compile_schema(tool.input_schema).problems(arguments) == []


def test_read_only_properties_are_neither_offered_nor_required_at_any_depth():
    schemas = {
        "Id": {"type": "integer", "readOnly": True},
        "User": {
            "type": "object",
            "properties": {"id": {"type": "integer", "readOnly": True}, "login": {"type": "string"}},
            "required": ["id", "login"],
            "additionalProperties": False,
        },
        "Base": {"type": "object", "properties": {"url": {"allOf": [{"$ref": "#/components/schemas/Id"}]}}},
        "Stated": {"type": "object", "required": ["url", "name"]},
    }
    post = {
        "type": "object",
        "properties": {
            "id": {"$ref": "#/components/schemas/Id"},
            "author": {"$ref": "#/components/schemas/User"},
            "readers": {"type": "array", "items": {"$ref": "#/components/schemas/User"}},
            "blog": {"allOf": [{"$ref": "#/components/schemas/Base"}, {"$ref": "#/components/schemas/Stated"}]},
            "link": {"allOf": [{"$ref": "#/components/schemas/Base"}], "anyOf": [{"required": ["url"]}]},
        },
        "required": ["id", "author"],
    }
    text = document({"/posts": {"post": operation(operationId="post", requestBody=json_body(post))}})
    tool = imported(json.dumps({**json.loads(text), "components": {"schemas": schemas}}))["post"]
    user = {"login": "ada"}
    assert tool.input_schema["required"] == ["author"] and "id" not in tool.input_schema["properties"]
    assert accepts(tool, {"author": user, "readers": [user], "blog": {"name": "x"}, "link": {}})
    assert not accepts(tool, {"author": {}}) and not accepts(tool, {"author": user, "blog": {}})
    assert not accepts(tool, {"author": {**user, "id": 1}})
    assert "read-only" not in json.dumps(tool.input_schema) and "readOnly" not in json.dumps(tool.input_schema)


NAMED = {"type": "object", "properties": {"name": {"type": "string"}}}
RULES = [
    (NAMED, True, True),
    ({**NAMED, "additionalProperties": False, "x-note": 1, "example": {}}, True, True),
    ({"$ref": "#/components/schemas/Named", "description": "A name."}, True, True),
    ({**NAMED, "required": ["name"]}, True, True),
    (NAMED, False, True),
    ({**NAMED, "required": ["name"]}, False, False),
    ({**NAMED, "additionalProperties": True}, True, False),
    ({**NAMED, "additionalProperties": {"type": "string"}}, True, False),
    ({**NAMED, "minProperties": 1}, True, False),
    ({**NAMED, "maxProperties": 1}, True, False),
    ({**NAMED, "patternProperties": {"^a": {}}}, True, False),
    ({**NAMED, "dependentRequired": {"name": ["a"]}}, True, False),
    ({**NAMED, "required": ["other"]}, True, False),
    ({**NAMED, "nullable": True}, True, False),
    ({**NAMED, "anyOf": [{"required": ["name"]}]}, True, False),
    ({"$ref": "#/components/schemas/Named", "minProperties": 1}, True, False),
]


def test_body_is_laid_out_only_where_no_rule_is_lost():
    def check(schema, required, is_laid_out):
        post = operation(operationId="o", requestBody=json_body(schema, required=required))
        tool = imported(document({"/": {"post": post}}, components={"schemas": {"Named": NAMED}}))["o"]
        assert [*tool.input_schema["properties"]] == (["name"] if is_laid_out else ["body"])
        assert accepts(tool, {}) == (not tool.input_schema["required"])

    assert faults(check, RULES) == {}


def test_rules_of_a_body_hold_for_its_argument():
    schema = {**NAMED, "additionalProperties": {"type": "string"}, "minProperties": 2, "required": ["name"]}
    post = operation(operationId="o", requestBody=json_body(schema, required=False))
    tool = imported(document({"/": {"post": post}}))["o"]
    assert accepts(tool, {}) and accepts(tool, {"body": {"name": "x", "more": "y"}})
    for wrong in ({"name": "x"}, {"more": "y", "other": "z"}, {"name": "x", "more": 1}):
        assert not accepts(tool, {"body": wrong})
    assert request_of(tool).body == b""


TEXT = {"type": "string"}
NULLABLE = [
    {"$ref": "#/components/schemas/Text", "nullable": True},
    {"allOf": [TEXT], "nullable": True},
    {"type": "string", "allOf": [{"maxLength": 3}], "nullable": True, "description": "d"},
    {"oneOf": [TEXT, {"type": "integer"}], "nullable": True},
    {"anyOf": [TEXT], "nullable": True},
    {"type": "string", "enum": ["a"], "nullable": True},
    {"type": ["string"], "nullable": True},
    {"not": {"type": "null"}, "nullable": True},
    {"type": "string", "nullable": True},
]


def test_nullable_allows_null_beside_any_keyword():
    def check(schema):
        body = json_body({"type": "object", "properties": {"a": {"type": "array", "items": schema}}})
        text = document(
            {"/": {"post": operation(operationId="o", requestBody=body)}},
            openapi="3.0.3",
            components={"schemas": {"Text": TEXT}},
        )
        tool = imported(text)["o"]
        assert accepts(tool, {"a": [None, "a"]}) and "nullable" not in json.dumps(tool.input_schema)
        strict = imported(text.replace('"nullable": true', '"nullable": false'))["o"]
        assert not accepts(strict, {"a": [None]})

    assert faults(check, NULLABLE) == {}


def test_yaml_document_is_read_as_written():
    text = """
openapi: 3.0.3
info: {title: Norway, version: 1.0}
servers: [{url: https://pets.example}]
x-body: &body
  required: true
  content: {application/json: {schema: {type: object, properties: {on: {type: string, enum: [NO, SE]}}}}}
paths:
  /a: {post: &post {operationId: on, requestBody: *body, responses: {200: {description: OK}}}}
  /b: {post: {<<: *post, operationId: off}}
"""
    tools = imported(text)
    assert [tool.input_schema["properties"] for tool in tools.values()] == [
        {"on": {"type": "string", "enum": ["NO", "SE"]}}
    ] * 2
    with pytest.raises(SourceProblem, match=r"aliases.*line 3"):
        list_operations("pets", "openapi: 3.0.3\nx-a: &a 1\nx-b: [" + "*a, " * 10_000 + "]")


def chosen(only):
    """Return the tools and problems of a document from which operations are chosen."""
    paths = {
        "/user": {"get": operation(operationId="me", tags=["users"]), "options": operation()},
        "/user/emails": {"get": operation(tags=["mail"]), "post": operation(parameters=[7])},
        "/users": {"get": operation(operationId="all", tags=["users", "mail"])},
    }
    listing = list_operations("pets", document(paths), ImportSettings(only=only))
    return [each.upstream for each in listing.definitions], len(listing.problems)


def test_operations_are_chosen_by_tag_path_or_name():
    assert chosen({}) == (["me", "get_user_emails", "all"], 2)
    assert chosen({"tags": ["users"]}) == (["me", "all"], 0)
    assert chosen({"paths": ["/user"]}) == (["me", "get_user_emails"], 2)
    assert chosen({"paths": ["/user/emails/"]}) == (["get_user_emails"], 1)
    assert chosen({"operations": ["all", "GET /user"]}) == (["me", "all"], 0)
    assert chosen({"tags": ["users"], "operations": ["get_user_emails"]}) == (["me", "get_user_emails", "all"], 0)
    assert chosen({"tags": ["users", "nobody"], "paths": ["/use"], "operations": ["ALL"]}) == (["me", "all"], 3)


KEYED = {
    "security": [{"key": []}],
    "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}},
}


def test_api_key_of_the_query_is_stored_with_the_source():
    get = operation(operationId="g", parameters=[parameter("api_key"), parameter("q")])
    text = document({"/a": {"get": get}, "/b": {"get": operation(security=[])}}, **KEYED)
    listing = list_operations("pets", text)
    assert len(listing.problems) == 1 and "'api_key'" in listing.problems[0]
    tool = imported(text, query=["api_key"])["g"]
    assert [*tool.input_schema["properties"]] == ["q"]
    sent = http_requests.prepare(Operation.from_json(tool.http), {"q": "x"}, {}, {"api_key": "s3 cret&"})
    assert sent.target() == "https://pets.example/a?q=x&api_key=s3%20cret%26"
    assert "s3" not in sent.shown() + repr(sent) and "api_key=••••" in sent.shown()


def test_argument_does_not_replace_a_stored_key_of_the_query():
    tool = imported(taking(parameter("p", schema=OBJECT)))["get"]
    sent = http_requests.prepare(
        Operation.from_json(tool.http), {"p": {"key": "mine", "a": "b"}}, {}, {"key": "stored"}
    )
    assert sent.target() == "https://pets.example/?a=b&key=stored"

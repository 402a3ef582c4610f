"""HTTP tools: defined by hand over REST, called through the gate, and what their server may answer."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from approvals.models import AuditEntry
from approvals.requests.lifecycle import invalidate_outdated
from catalog.gram import ToolSpecification
from catalog.inventory.http_tools import create_http_tool
from catalog.models import Tool
from catalog.sources.settings import MASK, MAX_ERROR_TEXT
from catalog.web.http_tools import HttpToolForm
from tests.builders import approve, call_of, make_plan, request_of, step, work_off
from tests.corpus import faults
from tests.http_server import serving
from tests.rest import Rest, agent, wrong_paths

SPECIFICATION = ToolSpecification("read_order", "Read an order.", "(id::Int)==>(note::Maybe Text)==>(::String)")
GRAM = SPECIFICATION.to_gram()
GRAM_SIGNATURE = SPECIFICATION.type_signature
PROPERTIES = {"id": {"type": "integer"}, "note": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["id"]}
SECRET = "Bearer s3cret-value"


HTTP = {"method": "GET", "url": "https://shop.example/orders/{id}"}


def test_tool_is_created_from_a_specification_as_json(db, admin):
    written = {**SPECIFICATION.to_json(), "schema": {"type": "array"}}
    made = Rest(admin).post("tools/", {"specification": written, "http": HTTP, "safety_level": "safe"})
    assert made.status_code == 201
    assert made.json()["input_schema"] == {**SPECIFICATION.schema, "additionalProperties": False}
    changed = {**written, "description": "Read one order.", "typeSignature": "(id::Int)==>(::String)"}
    assert Rest(admin).patch("tools/read_order/", {"specification": changed}).status_code == 200


NAMES = [
    ("sayHello", "say_hello"), ("HTTPServer2", "http_server2"), ("say-hello", "say_hello"),
    ("État actuel", "etat_actuel"),
    ("2fa", None), ("日本", None), ("approval_result", None), ("", None), (7, None), ("a" * 65, "a" * 64),
]  # fmt: skip


def test_name_made_by_hand_is_snake_case_and_proposed(db, admin):
    def check(name, proposal):
        for form in ({"schema": SCHEMA}, {"typeSignature": "(id::Int)==>(::String)"}):
            body = {"specification": {"name": name, "description": "d", **form}, "http": HTTP, "safety_level": "safe"}
            refused = Rest(admin).post("tools/", body)
            assert (refused.status_code, wrong_paths(refused)) == (422, ["specification.name"])
            message = refused.json()["errors"][0]["message"]
            assert message.endswith(f" Use {proposal}.") if proposal else " Use " not in message

    assert faults(check, NAMES) == {}
    gram = SPECIFICATION.to_gram().replace("read_order", "readOrder")
    refused = Rest(admin).post("tools/", {"specification": gram, "http": HTTP, "safety_level": "safe"})
    assert (refused.status_code, wrong_paths(refused)) == (422, ["specification.name"])


class ShopServer(ThreadingHTTPServer):
    """A server on a free port; `taken` is what arrived, `says` what it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Shop)
        self.taken: list[tuple[str, str, str | None, str]] = []
        self.says: object = "OK"
        self.url = f"http://127.0.0.1:{self.server_port}"


class Shop(BaseHTTPRequestHandler):
    """Answers with the status that the path names, and notes what it was sent."""

    def answer(self) -> None:
        """Answer a request of any method."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        assert isinstance(self.server, ShopServer)
        self.server.taken.append((self.command, self.path, self.headers.get("Authorization"), body))
        status = int(self.path.split("/")[2].partition("?")[0])
        if status == 999:
            return  # the connection is closed without an answer
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status == 429:
            self.send_header("Retry-After", "7")
        if status in (302, 307):
            self.send_header("Location", "/orders/200" if status == 307 else "http://10.0.0.1/")
        self.end_headers()
        self.wfile.write(json.dumps(self.server.says).encode())

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def shop(settings):
    """Serve until the test ends."""
    settings.TOOLGATE_EGRESS_ALLOW = ["127.0.0.1"]
    with serving(ShopServer()) as server:
        yield server


@pytest.fixture
def order_tool(transactional_db, admin, shop):
    """Return a function that creates a tool of a method and a level."""

    def create(method="GET", level="safe"):
        specification = {"name": "order", "description": "Handle an order.", "schema": SCHEMA}
        http = {"method": method, "url": shop.url + "/orders/{id}", "headers": {"Authorization": SECRET}}
        return create_http_tool(specification, http, safety_level=level, by=admin)

    return create


def called(ada, status):
    """Return the call of a plan that asks for an order."""
    plan = work_off(make_plan(ada, step(1, "order", parameters={"id": status, "note": "a b"})))
    return plan, call_of(plan)


def test_dangerous_call_is_shown_and_sent_exactly(order_tool, shop, ada, rosa):
    order_tool("POST", "dangerous")
    plan, _ = called(ada, 200)
    request = request_of(plan).rounds.get().preview_json or {}
    assert f"POST {shop.url}/orders/200" in request["after"] and '"note": "a b"' in request["after"]
    assert "s3cret" not in json.dumps(request) and shop.taken == []
    approve(plan, rosa)
    work_off(plan)
    assert shop.taken == [("POST", "/orders/200", SECRET, '{"note":"a b"}')]
    assert json.loads(call_of(plan).response)["results"] == ["OK"]


@pytest.mark.parametrize("status", [502, 999])
def test_answer_that_may_have_followed_an_effect_is_an_unknown_outcome(order_tool, ada, rosa, shop, status):
    """A gateway that fails may have passed the request on."""
    order_tool("DELETE", "dangerous")
    plan, _ = called(ada, status)
    approve(plan, rosa)
    work_off(plan)
    assert (call_of(plan).status, len(shop.taken)) == ("outcome_unknown", 1)


def test_arguments_that_make_the_address_too_long_are_refused(order_tool, ada, shop):
    order_tool()
    plan = work_off(make_plan(ada, step(1, "order", parameters={"id": 200, "note": "x" * 60_000})))
    call = call_of(plan)
    assert call.error_kind == "validation_error" and "too long" in call.message and shop.taken == []


@pytest.mark.parametrize("status", [200, 400])
def test_credential_that_a_server_sends_back_is_masked(order_tool, ada, shop, status):
    order_tool()
    shop.says = {"seen": SECRET, "token": SECRET.removeprefix("Bearer ")}
    _, call = called(ada, status)
    told = f"{call.message}{call.response}"
    assert "s3cret" not in told and "$secret" in told


def test_credential_at_the_limit_of_an_error_is_masked_before_the_error_is_cut(order_tool, ada, shop):
    order_tool()
    shop.says = {"seen": "x" * (MAX_ERROR_TEXT - 60) + SECRET * 20}
    _, call = called(ada, 400)
    assert "s3c" not in call.message and len(call.message) == MAX_ERROR_TEXT


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "upstream_invalid"),
        (401, "upstream_denied"),
        (404, "upstream_not_found"),
        (409, "upstream_conflict"),
        (429, "upstream_rate_limited"),
        (500, "upstream_failed"),
        (302, "upstream_refused"),
    ],
)
def test_failure_is_classified_by_status(order_tool, ada, shop, status, kind):
    order_tool()
    _, call = called(ada, status)
    assert (call.status, call.error_kind) == ("failed", kind)
    assert len(shop.taken) == 1 and "s3cret" not in call.message
    response = json.loads(call.response)
    assert (response["http_status"], response.get("retry_after")) == (status, 7 if status == 429 else None)


def test_redirect_within_the_origin_is_followed(order_tool, ada, shop):
    order_tool()
    assert called(ada, 307)[1].status == "completed"
    assert [path for _, path, _, _ in shop.taken] == ["/orders/307?note=a%20b", "/orders/200"]


def test_server_that_is_away_fails_before_anything_is_sent(order_tool, ada, rosa, shop):
    order_tool("DELETE", "dangerous")
    plan, _ = called(ada, 200)
    approve(plan, rosa)
    shop.server_close()
    work_off(plan)
    assert (call_of(plan).status, call_of(plan).error_kind) == ("failed", "upstream_unavailable")


def test_address_that_is_not_allowed_is_refused(order_tool, ada, shop, settings):
    order_tool()
    settings.TOOLGATE_EGRESS_ALLOW = []
    assert called(ada, 200)[1].error_kind == "egress_refused"
    assert shop.taken == []


@pytest.fixture
def changed(order_tool, admin):
    """Return a function that changes the request of a dangerous tool over REST and returns what the API then shows."""
    order_tool("POST", "dangerous")

    def change(**http):
        answer = Rest(admin).patch("tools/order/", {"http": http})
        assert answer.status_code == 200, answer.json()
        return answer.json()

    return change


def test_changed_header_replaces_an_expired_token(changed, shop, ada, rosa):
    before = changed()
    assert before["http"]["headers"] == {"Authorization": MASK}
    after = changed(headers={"Authorization": "Bearer renewed-token", "X-Shop": "1"}, timeout=9)
    assert (after["http"]["timeout"], after["version"], after["declared_level"]) == (9, 2, "dangerous")
    changed(headers={"Authorization": MASK})
    plan, _ = called(ada, 200)
    approve(plan, rosa)
    work_off(plan)
    assert shop.taken[0][2] == "Bearer renewed-token"
    last = AuditEntry.objects.filter(action="tool.changed").order_by("seq")
    assert [json.loads(entry.details)["fields"] for entry in last] == [["headers", "timeout"], ["headers"]]
    assert "renewed" not in "".join(last.values_list("details", flat=True))


def test_approval_of_the_old_request_does_not_start_the_new_one(changed, shop, ada, rosa):
    plan, call = called(ada, 200)
    changed(url=shop.url + "/refunds/{id}")
    approve(plan, rosa)
    work_off(plan)
    call.refresh_from_db()
    assert (shop.taken, call.approval.status) == ([], "superseded")
    preview = request_of(plan).rounds.get().preview_json or {}
    assert f"POST {shop.url}/refunds/200" in preview["after"]


def test_new_parameter_makes_a_version_and_ends_open_requests(changed, admin, ada):
    called(ada, 200)
    schema = {**SCHEMA, "properties": {**PROPERTIES, "page": {"type": "integer"}}}
    specification = {"name": "order", "description": "Handle an order.", "schema": schema}
    answer = Rest(admin).patch("tools/order/", {"specification": specification})
    assert (answer.json()["version"], answer.json()["http"]["headers"]) == (2, {"Authorization": MASK})
    assert AuditEntry.objects.filter(action="tool.drifted").exists()
    assert invalidate_outdated() == 1


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"http": {"url": "https://other.example/{id}"}}, "http.headers"),
        ({"http": {"headers": {"X-Key": MASK}}}, "http.headers.X-Key"),
        ({"specification": GRAM}, "specification.name"),
        ({"http": {"timeout": 9}, "safety_level": "cautious"}, "reason"),
    ],
)
def test_refused_change_names_its_field_and_changes_nothing(changed, admin, body, path):
    before = Tool.objects.get(name="order").definition
    answer = Rest(admin).patch("tools/order/", body)
    assert (answer.status_code, wrong_paths(answer)) == (422, [path])
    assert Tool.objects.get(name="order").definition == before


def test_request_is_changed_on_its_page(changed, shop, admin, client):
    client.force_login(admin)
    page = "/sources/http/order/change/"
    form = client.get(page).context["form"]
    sent = {field.name: field.value() for field in form}
    assert sent["headers"] == f"Authorization: {MASK}"
    assert client.post(page, {**sent, "timeout": "9"}).status_code == 302
    sent = {field.name: field.value() for field in client.get(page).context["form"]}
    refused = client.post(page, {**sent, "url": "https://other.example/{id}"})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["headers"])
    shown = changed()
    assert (shown["timeout"], shown["http"]["url"]) == (9, shop.url + "/orders/{id}")
    assert client.get("/tools/order/").content.decode().count(page) == 1


def test_tool_is_created_on_its_page(db, admin, client):
    """Its parameters are those of the URL, a JSON Schema or a type signature; a refusal is shown at its field."""
    client.force_login(admin)
    form = {"description": "Read it.", "method": "GET", "url": "https://shop.example/o/{id}", "timeout": "30"}
    for name, parameters in (("by_url", ""), ("by_schema", json.dumps(SCHEMA)), ("by_gram", GRAM_SIGNATURE)):
        made = client.post(
            "/sources/http/new/", {**form, "safety_level": "safe", "name": name, "parameters": parameters}
        )
        assert made.status_code == 302, made.context["form"].errors
        definition = Tool.objects.get(name=name).definition
        assert definition is not None and "id" in definition["input_schema"]["required"]
    for wrong, fields in (({"name": "sayHello"}, ["name"]), ({"parameters": "{"}, ["parameters"])):
        refused = client.post("/sources/http/new/", {**form, "safety_level": "safe", "name": "other", **wrong})
        assert (refused.status_code, list(refused.context["form"].errors)) == (422, fields)


def test_texts_that_are_too_long_are_not_searched_for_parameters():
    form = HttpToolForm({"url": "{a}" * 5000, "more": "b," * 5000 + "c"})
    assert {"url", "more"} <= form.errors.keys()
    assert form.names == ["a", "b"]


def test_parameters_of_a_tool_are_described_on_its_page_one_by_one(db, admin, client):
    """Their fields express the stored schema exactly, or it is shown as JSON; sending it again changes nothing."""
    client.force_login(admin)
    url = "https://shop.example/o/{id}?fields={fields}"
    form = {"name": "order", "description": "Read it.", "method": "GET", "url": url, "more": "limit", "timeout": "30"}
    rows = {"type:id": "integer", "example:id": "17", "about:id": "Its number", "type:fields": "string"}
    summary = {"HX-Request": "true", "HX-Target": "http-summary"}
    drawn = client.post("/sources/http/new/", {**form, "do": "rows"}, headers=summary).content.decode()
    assert [f'name="required:{name}"' in drawn for name in ("id", "fields", "limit")] == [False, True, True]
    form |= {"safety_level": "safe", **rows, "type:limit": "boolean", "example:limit": "5"}
    assert list(client.post("/sources/http/new/", form).context["form"].errors) == ["example:limit"]
    assert client.post("/sources/http/new/", {**form, "type:limit": "integer"}).status_code == 302
    tool = Tool.objects.get(name="order")
    assert tool.definition is not None and tool.definition["input_schema"] == {
        "additionalProperties": False,
        "type": "object",
        "properties": {
            "id": {"type": "integer", "description": "Its number", "examples": [17]},
            "fields": {"type": "string"},
            "limit": {"type": "integer", "examples": [5]},
        },
        "required": ["id"],
    }
    page = "/sources/http/order/change/"
    shown = {field.name: field.value() for field in client.get(page).context["form"]}
    assert (shown["more"], shown["parameters"]) == ("limit", "")
    assert client.post(page, shown).status_code == 302
    assert Tool.objects.get(name="order").current_version_id == tool.current_version_id
    listed = SCHEMA | {"properties": {"id": {"type": "array"}, "fields": {"type": "string"}}}
    assert client.post(page, {**shown, "parameters": json.dumps(listed)}).status_code == 302
    assert json.loads(client.get(page).context["form"]["parameters"].value())["properties"] == listed["properties"]


def test_page_does_not_undo_a_change_made_since_it_was_opened(changed, shop, admin, client):
    client.force_login(admin)
    page = "/sources/http/order/change/"
    opened = {field.name: field.value() for field in client.get(page).context["form"]}
    changed(url=shop.url + "/refunds/{id}", timeout=9)
    renewed = "Authorization: Bearer renewed-token"
    sent = {**opened, "parameters": opened["parameters"].replace("\n", "\r\n"), "headers": renewed}
    refused = client.post(page, sent)
    shown = changed()["http"]
    assert (refused.status_code, shown["url"], shown["timeout"]) == (422, shop.url + "/refunds/{id}", 9)
    assert [field.name for field in refused.context["stored"]] == ["url", "headers", "timeout"]
    assert shop.url + "/refunds/{id}" in refused.content.decode()
    again = {field.name: field.value() for field in refused.context["form"]}
    assert again["headers"] == renewed
    assert f'name="shown" value="{again["shown"]}"' in refused.content.decode()
    assert client.post(page, {**again, "url": shown["url"], "timeout": "9"}).status_code == 302
    assert changed()["http"] == shown


def test_reason_of_a_changed_request_is_audited(changed, admin):
    answer = Rest(admin).patch("tools/order/", {"http": {"timeout": 9}, "reason": "slow shop"})
    assert answer.status_code == 200
    assert json.loads(AuditEntry.objects.get(action="tool.changed").details)["reason"] == "slow shop"


def test_stored_header_may_go_to_another_path_and_entered_ones_to_another_server(changed, shop):
    changed(url=shop.url + "/refunds/{id}")
    changed(url="https://other.example/{id}", headers={"Authorization": SECRET})


@pytest.mark.usefixtures("catalog")
def test_request_of_another_tool_cannot_be_changed(admin):
    answer = Rest(admin).patch("tools/write_file/", {"http": {"timeout": 9}})
    assert (answer.status_code, wrong_paths(answer)) == (422, ["http"])


def test_tool_is_created_over_rest_by_administrators_only(db, admin, ada):
    body = {
        "specification": GRAM,
        "safety_level": "safe",
        "http": {"method": "GET", "url": "https://shop.example/o/{id}"},
    }
    assert agent(ada).post("tools/", body).status_code == 403
    made = Rest(admin).post("tools/", body)
    shown = {"method": "GET", "url": "https://shop.example/o/{id}", "headers": {}, "timeout": 30}
    assert (made.status_code, made.json()["http"]) == (201, shown)
    assert agent(ada).get("tools/read_order/").json()["http"] == {**shown, "headers": None}
    assert Tool.objects.get(name="read_order").source.name == "http"
    assert Rest(admin).post("tools/", body).status_code == 409


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://shop.example/{missing}", "http.url"),
        ("https://{id}.example/", "http.url"),
        ("https://shop.example/{note}", "http.url"),
        ("https://shop.example/{id", "http.url"),
        ("ftp://shop.example/{id}", "http.url"),
    ],
)
def test_bad_address_names_its_field(db, admin, url, path):
    body = {"specification": GRAM, "safety_level": "safe", "http": {"method": "GET", "url": url}}
    answer = Rest(admin).post("tools/", body)
    assert (answer.status_code, wrong_paths(answer)) == (422, [path])

"""Text fields of request bodies."""

import pytest

from catalog.rest.serializers import OptionalTextField, StrictSerializer, StrictTextField
from tests.rest import Rest, wrong_paths

SAY = {"tool": "render_text", "arguments": {"template": "hello", "values": {}}}


class Body(StrictSerializer):
    """A body with one text of each kind."""

    name = StrictTextField()
    reason = OptionalTextField(max_length=5)


@pytest.mark.parametrize(("reason", "kept"), [(None, ""), ("", ""), (" so ", " so ")])
def test_a_null_reason_is_empty_and_blanks_are_kept(reason, kept):
    body = Body(data={"name": " hello ", "reason": reason})
    assert body.is_valid()
    assert body.validated_data == {"name": " hello ", "reason": kept}


def test_a_blank_required_text_is_refused():
    body = Body(data={"name": "  ", "reason": "longer"})
    assert not body.is_valid()
    assert {name: error[0].code for name, error in body.errors.items()} == {"name": "blank", "reason": "max_length"}


def test_surrounding_blanks_are_part_of_a_name(catalog, ada):
    rest = Rest(ada)
    assert wrong_paths(rest.post("calls/", {**SAY, "tool": " render_text "})) == ["tool"]
    assert rest.post("calls/", {**SAY, "reason": None}).status_code == 201


def test_session_name_over_its_length_is_refused(catalog, ada):
    answer = Rest(ada).post("calls/", SAY, **{"Toolgate-Session": "s" * 129})
    assert (answer.status_code, wrong_paths(answer)) == (422, ["Toolgate-Session"])

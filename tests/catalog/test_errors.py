"""User messages of errors."""

from catalog.errors import MalformedJSON, ParameterError, QueryTypeUnsupported, ToolError, UnknownTool


def test_a_tool_error_says_exactly_its_message():
    assert ToolError("Nothing there.").user_message() == "Nothing there."


def test_a_parameter_error_names_the_field():
    error = ParameterError("must be a day", {"field": "start_date"})

    assert error.user_message() == "The parameter 'start_date' is invalid: must be a day"


def test_a_parameter_error_without_a_field_names_none():
    assert ParameterError("too many", {"field": None}).user_message() == "Invalid parameter: too many"


def test_an_unsupported_query_type_lists_the_supported_ones():
    error = QueryTypeUnsupported("x", "sec_financial_data", ["a", "b"])

    assert str(error) == ("Query type 'x' is not supported by the sec_financial_data tool. Supported types are: a, b")
    assert error.details == {"query_type": "x", "tool_name": "sec_financial_data", "supported_types": ["a", "b"]}


def test_an_unknown_tool_suggests_its_nearest_names():
    assert str(UnknownTool("red_file", ["read_file"])) == "Unknown tool: red_file. Did you mean read_file?"


def test_malformed_json_gathers_its_path_from_the_inside_out():
    problem = MalformedJSON("Bad.").inside(0).inside("steps")

    assert problem.path == "steps.0"
    assert str(problem) == "Bad. (at steps.0)"

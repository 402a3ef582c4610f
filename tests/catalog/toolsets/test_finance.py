"""Reported annual figures: the right numbers, real dates, and a warning when nothing is known."""

import pytest

from catalog.dispatch.arguments import prepare_arguments
from catalog.dispatch.pipeline import run_call, standard_response
from catalog.errors import ParameterError, QueryTypeUnsupported
from catalog.testing import make_context
from catalog.toolsets.finance import sec_financial_data

APPLE = {"ticker": "AAPL", "metrics": ["Revenue"], "start_date": "2022-01-01", "end_date": "2022-12-31"}


def ask(query_type, **parameters):
    arguments = prepare_arguments(sec_financial_data, {"query_type": query_type, "parameters": parameters})
    return standard_response(
        sec_financial_data, arguments.given, run_call(sec_financial_data, arguments, make_context())
    )


def test_the_example_of_the_contract_runs():
    response = ask("financial_facts", **APPLE)

    assert response["query_type"] == "financial_facts" and response["parameters"] == APPLE
    assert response["output_key"] == "sec_financial_data" and response["success"] is True
    assert response["data"] == {"Revenue": 394328} and response["unit"] == "USD millions"
    assert response["results"] == [
        {
            "ticker": "AAPL",
            "metric": "Revenue",
            "fiscal_year": 2022,
            "period_end": "2022-09-24",
            "value": 394328,
            "unit": "USD millions",
        }
    ]


def test_data_holds_the_latest_period_of_the_range():
    response = ask("financial_facts", **APPLE | {"start_date": "2020-01-01"})

    assert [fact["value"] for fact in response["results"]] == [274515, 365817, 394328]
    assert response["data"] == {"Revenue": 394328}


def test_companies_are_compared_and_described():
    compared = ask("compare", tickers=["AAPL", "MSFT"], metric="Revenue", fiscal_year=2022)
    described = ask("company_info", ticker="nvda")

    assert compared["data"] == {"AAPL": 394328, "MSFT": 198270}
    assert described["results"][0]["name"] == "NVIDIA Corporation"
    assert described["results"][0]["fiscal_years"] == [2021, 2022, 2023, 2024]


@pytest.mark.parametrize(
    ("query_type", "parameters"),
    [
        ("financial_facts", APPLE | {"ticker": "ZZZZ"}),
        ("financial_facts", APPLE | {"start_date": "1999-01-01", "end_date": "1999-12-31"}),
        ("financial_facts", APPLE | {"filing_type": "8-K"}),
        ("company_info", {"ticker": "ZZZZ"}),
        ("compare", {"tickers": ["AAPL", "ZZZZ"], "metric": "Revenue", "fiscal_year": 2022}),
        ("compare", {"tickers": ["AAPL", "MSFT"], "metric": "Revenue", "fiscal_year": 1999}),
    ],
)
def test_what_is_not_known_is_a_warning_with_empty_results(query_type, parameters):
    response = ask(query_type, **parameters)

    assert response["results"] == [] and response["success"] is False
    assert response["warning"] and "error" not in response


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"start_date": "2022-02-31"}, "parameters.start_date"),
        ({"start_date": "2022-1-1"}, "parameters.start_date"),
        ({"start_date": "20220101"}, "parameters.start_date"),
        ({"end_date": ""}, "parameters.end_date"),
        ({"end_date": 20221231}, "parameters.end_date"),
        ({"end_date": "2021-12-31"}, "parameters.start_date"),
        ({"metrics": []}, "parameters.metrics"),
        ({"ticker": ""}, "parameters.ticker"),
    ],
)
def test_parameters_that_make_no_sense_name_their_field(change, field):
    with pytest.raises(ParameterError) as caught:
        ask("financial_facts", **APPLE | change)

    assert caught.value.details["field"] == field


def test_an_unknown_figure_names_the_known_ones():
    response = ask("financial_facts", **APPLE | {"metrics": ["Revenue", "Sales"]})

    assert "parameters.metrics.1" in response["error"]
    assert "known are Revenue, OperatingIncome, NetIncome, TotalAssets" in response["error"]


def test_an_unknown_query_type_names_the_known_ones():
    with pytest.raises(QueryTypeUnsupported, match="financial_facts, company_info, compare"):
        ask("prices", ticker="AAPL")

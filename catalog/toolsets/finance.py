"""Annual figures of large companies as they reported them, in millions of US dollars; shipped data."""

import json
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from catalog.errors import DataNotFound, field_error
from catalog.tools import ToolSpec, tool

FIGURES_FILE = Path(__file__).parent / "data" / "annual_figures.json"
NOT_METRICS = frozenset({"fiscal_year", "period_end"})

Ticker = Annotated[str, Field(description="Stock ticker, such as AAPL", min_length=1, max_length=12)]
Metric = Annotated[str, Field(description="Name of a figure, such as Revenue", max_length=64)]


class FinancialFactsParams(BaseModel):
    """Figures of one company whose reported periods end between two dates."""

    ticker: Ticker
    metrics: list[Metric] = Field(min_length=1, max_length=20)
    start_date: str = Field(description="First day, as YYYY-MM-DD", max_length=10)
    end_date: str = Field(description="Last day, as YYYY-MM-DD", max_length=10)
    filing_type: str | None = Field(default=None, description="Only figures from this form, such as 10-K")

    @field_validator("start_date", "end_date")
    @classmethod
    def validate_date_format(cls, value: str) -> str:
        """Refuse a text that is not a day of the calendar, written as YYYY-MM-DD."""
        try:
            written = date.fromisoformat(value).isoformat()
        except ValueError:
            written = None
        if written != value:
            raise ValueError("Date must be a real day in YYYY-MM-DD format")
        return value

    @model_validator(mode="after")
    def validate_order(self) -> Self:
        """Refuse a range that ends before it starts."""
        if self.start_date > self.end_date:
            raise ValueError("start_date must not be after end_date")
        return self


class CompanyInfoParams(BaseModel):
    """The company to look up."""

    ticker: Ticker


class CompareParams(BaseModel):
    """One figure of several companies for the fiscal year each of them calls by that number."""

    tickers: list[Ticker] = Field(min_length=2, max_length=20)
    metric: Metric
    fiscal_year: int = Field(ge=1990, le=2100)


Params = FinancialFactsParams | CompanyInfoParams | CompareParams

SPEC = ToolSpec(
    name="sec_financial_data",
    description="Look up annual figures large companies reported to the SEC (Form 10-K), in USD millions.",
    input_schema={
        "financial_facts": FinancialFactsParams,
        "company_info": CompanyInfoParams,
        "compare": CompareParams,
    },
    output_key="sec_financial_data",
)


@tool(spec=SPEC, categories=["finance"], retry_safe=True)
def sec_financial_data(params: Params) -> dict[str, Any]:
    """Answer each query type with its `results`, and the values alone under `data`."""
    if isinstance(params, FinancialFactsParams):
        _validate_metrics(params.metrics, "parameters.metrics")
        company = _company(params.ticker)
        years = [
            year
            for year in company["years"]
            if params.start_date <= year["period_end"] <= params.end_date
            and params.filing_type in (None, _figures()["form"])
        ]
        facts = [fact for metric in params.metrics for fact in _facts(company, years, metric)]
        if not facts:
            period = f"{params.start_date} to {params.end_date}"
            raise DataNotFound(f"{company['ticker']} reported none of these figures from {period}.")
        latest = {fact["metric"]: fact["value"] for fact in facts}  # years ascend, so the last one stays
        return {"results": facts, "data": latest, "unit": _figures()["unit"], "company": company["name"]}
    if isinstance(params, CompareParams):
        _validate_metrics([params.metric], "parameters.metric")
        facts = []
        for ticker in params.tickers:
            company = _company(ticker)
            years = [year for year in company["years"] if year["fiscal_year"] == params.fiscal_year]
            facts.extend(_facts(company, years, params.metric))
        if not facts:
            raise DataNotFound(f"None of these companies has a fiscal year {params.fiscal_year} here.")
        values = {fact["ticker"]: fact["value"] for fact in facts}
        return {"results": facts, "data": values, "unit": _figures()["unit"]}
    company = _company(params.ticker)
    described = {name: company[name] for name in ("ticker", "name", "cik")}
    fiscal_years = [year["fiscal_year"] for year in company["years"]]
    return {"results": [described | {"fiscal_years": fiscal_years, "metrics": _metrics()}], "data": described}


def _facts(company: dict[str, Any], years: list[dict[str, Any]], metric: str) -> Iterator[dict[str, Any]]:
    for year in years:
        if metric in year:
            yield {
                "ticker": company["ticker"],
                "metric": metric,
                "fiscal_year": year["fiscal_year"],
                "period_end": year["period_end"],
                "value": year[metric],
                "unit": _figures()["unit"],
            }


def _company(ticker: str) -> dict[str, Any]:
    companies: list[dict[str, Any]] = _figures()["companies"]
    symbol = ticker.strip().upper()
    found = next((company for company in companies if company["ticker"] == symbol), None)
    if found is None:
        known = ", ".join(company["ticker"] for company in companies)
        raise DataNotFound(f"No company with the ticker '{ticker}' is known here; known are {known}.")
    return found


def _validate_metrics(metrics: list[str], field: str) -> None:
    for index, metric in enumerate(metrics):
        if metric not in _metrics():
            path = field if field.endswith("metric") else f"{field}.{index}"
            message = f"'{metric}' is not a known figure; known are {', '.join(_metrics())}."
            raise field_error(path, "unknown_metric", message)


def _metrics() -> list[str]:
    names = {name: None for company in _figures()["companies"] for year in company["years"] for name in year}
    return [name for name in names if name not in NOT_METRICS]


@cache
def _figures() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(FIGURES_FILE.read_text("utf-8"))
    return figures

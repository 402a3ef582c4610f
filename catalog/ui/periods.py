"""The period of pages with statistics: the last days, from the URL."""

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

from catalog.calls.statistics import LEAST_DAYS, MOST_DAYS, USUAL_DAYS
from catalog.ui.page_forms import PageForm

PERIODS = (7, 14, USUAL_DAYS, MOST_DAYS)
"""The numbers of days that pages offer; others can be written into the URL."""
DAYS_ALLOWED = format_lazy(gettext_lazy("Choose {least} to {most} days."), least=LEAST_DAYS, most=MOST_DAYS)


class PeriodForm(PageForm):
    days = forms.IntegerField(
        required=False,
        min_value=LEAST_DAYS,
        max_value=MOST_DAYS,
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), DAYS_ALLOWED),
    )

    @property
    def chosen_days(self) -> int:
        """The number of days; the default if it is missing or invalid."""
        self.is_valid()
        return self.cleaned_data.get("days") or USUAL_DAYS

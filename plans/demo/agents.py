"""The demo's agent: it reads, and writes files that people approve. No model runs in the demo."""

from django.contrib.auth.models import User

from plans.agents.administration import create
from plans.models import Agent

RESEARCHER = {
    "name": "researcher",
    "instructions": """\
Finds things out from filings and from files, and writes what it found to a file.

Look up figures before you state them, and say for each where it is from. Read a file before you replace it. Write \
one file at the end, under reports/, and name it in your answer. If something is missing that only a person knows, \
say so instead of guessing.""",
    "tools": {
        "names": ["sec_financial_data", "read_file", "list_files", "search_files", "render_text", "write_file"],
        "categories": [],
        "max_level": "dangerous",
    },
    "strategy": "plan_act_reflect",
    "budget": {"rounds": 12, "calls": 40, "tokens": 200_000, "seconds": 900},
    "groups": [],
    "enabled": True,
}


def make_agents() -> None:
    """Make the one that was never made here; who changed it keeps it so."""
    if not Agent.objects.filter(name=RESEARCHER["name"]).exists():
        create(RESEARCHER, by=User.objects.get(username="admin"))

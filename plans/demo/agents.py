"""The demo's agent, which reads sources and writes files that people approve. No model runs in the demo."""

from django.contrib.auth.models import User

from plans.agents.administration import create
from plans.models import Agent

RESEARCHER = {
    "name": "researcher",
    "instructions": """\
Researches filings and files, and writes the findings to a file.
Look up figures before you state them, and give the source of each. Read a file before you replace it. Write one file \
at the end, under reports/, and name it in your answer. If something is missing that only a person knows, say so \
instead of guessing.""",
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
    """Create the agent unless it exists, so that changes by users are kept."""
    if not Agent.objects.filter(name=RESEARCHER["name"]).exists():
        create(RESEARCHER, by=User.objects.get(username="admin"))

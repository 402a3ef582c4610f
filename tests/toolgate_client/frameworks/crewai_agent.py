"""A crew of CrewAI with a scripted model and a gated tool: prints the runs and the results that it reads."""

import json
import sys
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

from toolgate_client import Client
from toolgate_client.adapters.crewai import gated_tool


class ScriptedModel(BaseLLM):
    """Deletes one file after the other, in CrewAI's own notation of calls."""

    paths: list[str]
    read: list[str]

    def call(self, messages: Any, *arguments: Any, **options: Any) -> str:
        """Return the next call, or the final answer."""
        self.read[:] = [
            message["content"].partition("Observation:")[2].strip().splitlines()[0]
            for message in messages
            if message["role"] == "assistant" and "Observation:" in message["content"]
        ]
        if self.paths:
            path = json.dumps({"path": self.paths.pop(0)})
            return f"Thought: I delete it.\nAction: delete_file\nAction Input: {path}\n"
        return "Thought: I am done.\nFinal Answer: Done."

    def supports_function_calling(self) -> bool:
        """Return False: calls are written as text."""
        return False


def main(url: str, token: str, paths: list[str]) -> None:
    """Run the crew."""
    runs: list[str] = []

    @tool
    def delete_file(path: str) -> str:
        """Delete a file."""
        runs.append(path)
        return f"{path} is gone"

    model = ScriptedModel(model="scripted", paths=paths, read=[])
    with Client(url, token, session="crewai") as client:
        agent = Agent(
            role="cleaner",
            goal="clean",
            backstory="-",
            llm=model,
            tools=[gated_tool(delete_file, client)],
            verbose=False,
        )
        task = Task(description="Delete them.", expected_output="Done.", agent=agent)
        Crew(agents=[agent], tasks=[task], verbose=False).kickoff()
    sys.stdout.write("\n" + json.dumps({"runs": runs, "read": model.read}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))

"""A fan-out in DBOS: a workflow of one step, then many steps at once, then one step that joins them.

Runs in DBOS's environment: `dbos_fanout.py DATABASE_URL STEPS`. For each line on standard input it prints the
milliseconds of one run. The steps are coroutines awaited together, for DBOS the fastest way that keeps each result.
"""

import asyncio
import sys
from time import perf_counter

from dbos import DBOS


@DBOS.step()
async def work(number: int) -> int:
    """Do nothing."""
    return number


@DBOS.workflow()
async def fan_out(steps: int) -> int:
    """Run a root, this many concurrent steps, and a join."""
    await work(0)
    found = await asyncio.gather(*(work(number) for number in range(steps)))
    return await work(len(found))


async def measure(steps: int) -> float:
    began = perf_counter()
    handle = await DBOS.start_workflow_async(fan_out, steps)
    found = await handle.get_result()
    milliseconds = (perf_counter() - began) * 1000
    if found != steps:
        raise RuntimeError(f"The workflow returned {found}.")
    return milliseconds


async def main() -> None:
    while await asyncio.to_thread(sys.stdin.readline):
        print(await measure(int(sys.argv[2])), flush=True)


if __name__ == "__main__":
    DBOS(config={"name": "fan-out", "system_database_url": sys.argv[1], "log_level": "ERROR"})
    DBOS.launch()
    asyncio.run(main())
    DBOS.destroy()

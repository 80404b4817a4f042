"""A process of the race tests: many tasks ask at once; prints how many were granted.

contender.py URL NAME TASKS charge START LIMIT | fixed, sliding, gcra, all 0 LIMIT | acquire 0 LIMIT
"""

import asyncio
import sys
from collections.abc import Callable

from seawall.limits.charge import Demand
from seawall.limits.window import Algorithm, Window
from seawall.store import open_store
from seawall.store.contract import Charge

# Long enough that nothing comes back while the race lasts.
YEAR = 31536000
WINDOWS: dict[str, Callable[[int], tuple[Window, ...]]] = {
    "fixed": lambda limit: (Window(Algorithm.FIXED, limit, YEAR),),
    "sliding": lambda limit: (Window(Algorithm.SLIDING, limit, YEAR),),
    "gcra": lambda limit: (Window(Algorithm.GCRA, limit, YEAR, limit),),
    "all": lambda limit: (
        Window(Algorithm.FIXED, limit + 9, YEAR),
        Window(Algorithm.SLIDING, limit + 5, YEAR),
        Window(Algorithm.GCRA, limit, YEAR, limit),
    ),
}


async def main(url: str, name: str, tasks: int, what: str, start: int, limit: int) -> int:
    store = open_store(url, owner=f"contender-{name}", timeout=20)
    await store.start()

    async def contend(task: int) -> int:
        granted = 0
        for turn in range(10):
            if what == "charge":
                [count] = await store.charge([Charge(b"race", start, 86400, 1)])
                granted += count <= limit
            elif what in WINDOWS:
                [outcome] = await store.charge_all([Demand(b"race", WINDOWS[what](limit), 1, charge_refused=False)])
                granted += not outcome.over
            else:
                granted += (await store.acquire("race", f"{name}-{task}-{turn}", limit, 600)).granted
        return granted

    granted = await asyncio.gather(*[contend(task) for task in range(tasks)])
    await store.close()
    return sum(granted)


if __name__ == "__main__":
    url, name, tasks, what, start, limit = sys.argv[1:]
    print(asyncio.run(main(url, name, int(tasks), what, int(start), int(limit))))

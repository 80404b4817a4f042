"""A worker of the failover race: tasks take slots, hold them for a moment, charge a counter, until SIGTERM.

failover_contender.py URL NAME WORKERS TASKS POOL COUNTER LIMIT LEASE; says `up` once it is connected, and at the end, as
JSON: each holding as [from, to] in monotonic seconds, which all processes of a machine share; how many charges were
`answered` and how many `failed`, which may have counted or not; the counts that were answered; the worker's metrics.
"""

import asyncio
import json
import random
import signal
import sys
import time

from seawall.serve.slots import Slots
from seawall.store.address import parse
from seawall.store.contract import Charge, StoreUnavailable
from seawall.store.redis import RedisStore
from seawall.telemetry.metrics import Metrics


async def main(
    url: str, name: str, workers: int, tasks: int, pool: str, counter: str, limit: int, lease: float
) -> None:
    store, metrics = RedisStore(parse(url), owner=name, timeout=0.25), Metrics()
    slots = Slots(store, metrics, lease=lease, workers_alive=lambda: workers)
    await store.start()
    store.workers_alive(workers)
    keeping = asyncio.get_running_loop().create_task(slots.keep(lambda: [pool]))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    held: list[tuple[float, float]] = []
    counts: list[int] = []
    failed = 0

    async def contend(task: int) -> None:
        nonlocal failed
        turn = 0
        while not stop.is_set():
            turn += 1
            hold = slots.hold(pool, f"{name}-{task}-{turn}")
            if await hold.acquire(limit):
                since = time.monotonic()
                await asyncio.sleep(random.uniform(0.05, 0.3))
                held.append((since, time.monotonic()))
            hold.release()
            try:
                counts.extend(await store.charge([Charge(counter.encode(), 0, 86400, 1)]))
            except StoreUnavailable:
                failed += 1
            await asyncio.sleep(random.uniform(0.01, 0.05))

    print("up", flush=True)
    await asyncio.gather(*(contend(task) for task in range(tasks)))
    keeping.cancel()
    told = {metric: n for metric, _, n in metrics.snapshot()["counters"]}
    print(json.dumps({"held": held, "counts": counts, "failed": failed, "metrics": told}))
    await store.close()


if __name__ == "__main__":
    url, name, workers, tasks, pool, counter, limit, lease = sys.argv[1:]
    asyncio.run(main(url, name, int(workers), int(tasks), pool, counter, int(limit), float(lease)))

"""The process that keeps the workers: starts them, restarts the dead, adds up what they count, passes signals on.

It never touches a request. Its only children are the workers; killed, it leaves workers that notice, go on for
SEAWALL_ORPHAN_TIME, and go when the workers of the next supervisor have taken their names.
"""

import asyncio
import contextlib
import os
import signal
import time
from typing import Any

from seawall.rpc.tasks import Tasks
from seawall.serve.child import Child
from seawall.serve.chores import Chores
from seawall.serve.claim import Claim, Taken
from seawall.serve.endpoints import Endpoints
from seawall.serve.errands import Page, Question
from seawall.serve.handoff import Distributor
from seawall.serve.hangup import Terminal
from seawall.serve.notify import Notify
from seawall.serve.orphans import Orphans
from seawall.serve.roll import Act, Phase, Roll, Step
from seawall.serve.seat import Seat
from seawall.serve.settings import Settings
from seawall.serve.sockets import sweep, sweep_after
from seawall.serve.xds_subscriber import Subscriber
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Totals

BACKOFF = 0.1
"""Seconds before the first restart; doubled for each death in a row, up to BACKOFF_MAX."""
BACKOFF_MAX = 5.0
STEADY = 10.0
"""A worker that lived this long has not died in a row."""
FAILED_STARTS = 3
"""Deaths before any worker has ever served, after which the supervisor gives up."""
ASK_EVERY = 1.0
ERRAND_TIME = 2.0
"""Seconds that a worker has for what came by HTTP."""
LIMITS_TIME = 10.0
"""Seconds that workers have to take limits of a control plane before they are acknowledged all the same."""
LOOK_EVERY = 0.05
"""Seconds between two looks at what is about to change."""


class Supervisor:
    """Runs `settings.workers` workers until told to stop."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.log = Log(level=settings.log_level)
        self._tasks = Tasks(lambda where, e: self.log("error", "fault", where=where, error=repr(e)))
        self._seats = [Seat(index) for index in range(settings.workers)]
        self._totals = Totals()
        self._stopping = asyncio.Event()
        self._at_once = False
        self._restarts: dict[str, int] = {}
        self._ever_served = False
        self._failed_starts = 0
        self._attending: set[asyncio.Task[None]] = set()
        self._roll: Roll | None = None
        self._rolls = 0
        self._again = False
        """Asked for another restart while one runs."""
        self._turn = 0
        self._orphans = Orphans(settings)
        self._terminal = Terminal()
        self._notify = Notify(os.environ, os.getpid())
        hands_out = settings.listen is not None and settings.transport == "own"
        self._distributor = Distributor(settings.listen or "") if hands_out else None
        xds = settings.limits_xds
        self._xds = Subscriber(xds, self._hand_limits, self.log) if xds is not None else None

    async def run(self) -> int:
        """Supervise; the exit status."""
        loop = asyncio.get_running_loop()
        for sig, at_once in ((signal.SIGTERM, False), (signal.SIGINT, True)):
            loop.add_signal_handler(sig, self.stop, at_once)
        loop.add_signal_handler(signal.SIGHUP, self.hangup)
        endpoints = Endpoints(self.settings, self.metrics, self.ready, self.healthy, self.errand)
        held: Claim | None = None
        try:
            await endpoints.start()
            if self.settings.socket_dir:
                held = Claim.take(self.settings.socket_dir, self.settings.http)
                sweep(self.settings.socket_dir)
            if self._distributor is not None:
                self._distributor.listen()
        except (OSError, Taken) as e:
            self.log("error", "can't listen", error=(e.strerror if isinstance(e, OSError) else None) or str(e))
            self.log.close()
            await endpoints.stop()
            if held is not None:
                held.release()
            return 1
        chores = Chores(self.settings, self.log)
        if self._xds is not None:
            self._tasks.start(self._xds.run(), "xds")
        if not self.settings.without_policy and (self.settings.store != "memory" or self.settings.envoy_dir):
            self._tasks.start(chores.run(), "chores")
        for seat in self._seats:
            self._attend(self._fill(seat), f"worker {seat.index}")
        self._tasks.start(self._rebalance(), "rebalance")
        self._tasks.start(self._signs_of_life(), "notify")
        burying = self._tasks.start(self._orphans.bury(self.log), "orphans")
        while self._attending:
            await asyncio.wait(self._attending)
        await asyncio.wait([burying])
        if self._distributor is not None:
            self._distributor.close()
        await endpoints.stop()
        await self._tasks.cancel_all()
        await chores.close()
        if held is not None:
            held.release()
        status = 0 if self._stopping.is_set() and self._failed_starts < FAILED_STARTS else 1
        self.log("info", "supervisor stopped", status=status)
        self.log.close()
        return status

    def stop(self, at_once: bool) -> None:
        """Pass the wish on: SIGTERM drains, SIGINT (or a second signal) stops at once."""
        self._at_once = self._at_once or at_once or self._stopping.is_set()
        self._stopping.set()
        self._notify.stopping()
        for child in self._children():
            self._end(child)
        self._orphans.stop(at_once=self._at_once)

    def _end(self, child: Child) -> None:
        if self._at_once or not child.served:
            child.stop()
        else:
            child.drain(2 * self.settings.check_interval + 1 + self.settings.grace)

    def hangup(self) -> None:
        """SIGHUP: restart the workers one by one; or drain, when it says that our terminal has gone."""
        if self._terminal.gone():
            self.stop(at_once=False)
        elif self._stopping.is_set():
            return
        elif self._roll is not None and self._roll.phase is Phase.RUNNING:
            self._again = True
        else:
            self._begin_roll()

    # Rolling restart

    def _begin_roll(self) -> None:
        self._rolls += 1
        self._roll = roll = Roll(time.monotonic(), len(self._seats), self.settings.ready_time)
        if self.settings.listen is not None and self.settings.transport == "grpcio":
            roll.phase, roll.why = Phase.STOPPED, "with SEAWALL_TRANSPORT=grpcio two workers can't share SEAWALL_LISTEN"
            self.log("error", "no rolling restart", why=roll.why)
            return
        self.log("info", "rolling restart", workers=roll.places)
        self._notify.reloading(f"restarting {roll.places} workers one by one")
        self._tasks.start(self._roll_on(roll), "roll")

    async def _roll_on(self, roll: Roll) -> None:
        while roll.phase is Phase.RUNNING and not self._stopping.is_set():
            step = roll.step(time.monotonic(), [seat.seen() for seat in self._seats])
            if step is not None:
                await self._carry_out(step, roll)
            else:
                await asyncio.sleep(LOOK_EVERY)
        if self._stopping.is_set():
            return
        if roll.phase is Phase.STOPPED:
            self.log("error", "rolling restart stopped, the rest stay as they were", done=roll.done, why=roll.why)
        else:
            self.log("info", "rolling restart done", workers=roll.done)
        self._notify.ready(self._status())
        if self._again:
            self._again = False
            self._begin_roll()

    async def _carry_out(self, step: Step, roll: Roll) -> None:
        seat = self._seats[step.place]
        if step.act is Act.START:
            try:
                seat.coming = await self._start(seat)
            except OSError as e:
                seat.trouble = f"can't be run: {e.strerror}"
            else:
                self._attend(self._watch(seat, seat.coming), f"worker {seat.index}")
        elif step.act is Act.GIVE_UP:
            if seat.coming is not None:
                seat.coming.stop()
        elif step.act is Act.REPLACE:
            self._count_restart("roll")
            seat.leaving, seat.current, seat.coming = seat.current, seat.coming, None
            if seat.leaving is not None:
                if self._distributor is not None:
                    self._distributor.taking(seat.leaving.key, False)
                seat.leaving.leave(self.settings.grace)
            self.log("info", "worker replaced", worker=f"w{seat.index}", done=roll.done, of=roll.places)

    # The workers' lives

    def _attend(self, work: Any, name: str) -> None:
        task = self._tasks.start(work, name)
        self._attending.add(task)
        task.add_done_callback(self._attending.discard)

    async def _fill(self, seat: Seat, delay: float = 0.0) -> None:
        """Give a seat a worker, and look after it."""
        while not await self._stopped_within(delay):
            try:
                seat.current = await self._start(seat)
            except OSError as e:
                self.log("error", "worker can't be run", worker=f"w{seat.index}", error=e.strerror or str(e))
                delay = min(BACKOFF_MAX, max(BACKOFF, 2 * delay))
                continue
            self._attend(self._watch(seat, seat.current), f"worker {seat.index}")
            return

    async def _stopped_within(self, seconds: float) -> bool:
        if seconds and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    async def _start(self, seat: Seat) -> Child:
        seat.generation += 1
        seat.trouble = ""
        line = self._distributor.join((seat.index, seat.generation)) if self._distributor is not None else None
        child = await Child.start(self.settings, seat.index, seat.generation, line)
        if self._xds is not None and self._xds.latest is not None:
            child.limits(*self._xds.latest)
        if self._stopping.is_set():
            child.stop()
        return child

    async def _watch(self, seat: Seat, child: Child) -> None:
        """Look after one process until it has ended, and after what that means for its seat."""
        asking = self._tasks.start(self._poll(seat, child), f"poll {seat.index}")
        status = await child.ended()
        asking.cancel()
        if child.snapshot is not None:
            self._totals.update(str(child.pid), child.snapshot["metrics"])
        self._totals.ended(str(child.pid))
        if self._distributor is not None:
            self._distributor.leave(child.key)
        if self.settings.socket_dir:
            sweep_after(self.settings.socket(seat.index), child.pid, last=self._stopping.is_set())
        lived = time.monotonic() - child.born
        if child is seat.leaving:
            seat.leaving = None
            self.log("info", "worker left", worker=f"w{seat.index}", pid=child.pid, lived=lived, status=status)
            return
        why = "hung" if child.hung else "left" if status == 0 else "died"
        if status == 0:
            self.log("info", "worker left", worker=f"w{seat.index}", pid=child.pid, lived=lived)
        elif not self._stopping.is_set():
            self.log(
                "error", "worker died", worker=f"w{seat.index}", pid=child.pid, status=status, lived=lived, why=why
            )
        if not child.served:
            seat.trouble = f"ended with status {status}"
        if child is seat.coming:
            seat.coming = None
            return
        seat.current = None
        if self._stopping.is_set():
            return
        self._count_restart(why)
        if seat.coming is not None:
            # Its successor of the rolling restart is on its way already.
            seat.current, seat.coming = seat.coming, None
            return
        if not child.served and not self._ever_served:
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS:
                self.log("error", "workers can't start, giving up")
                self.stop(at_once=True)
                return
        seat.deaths = 1 if lived > STEADY else seat.deaths + 1
        self._attend(self._fill(seat, min(BACKOFF_MAX, BACKOFF * 2 ** (seat.deaths - 1))), f"worker {seat.index}")

    def _count_restart(self, why: str) -> None:
        self._restarts[why] = self._restarts.get(why, 0) + 1

    async def _poll(self, seat: Seat, child: Child) -> None:
        """Ask one worker again and again; one that hangs keeps nobody else waiting, and is killed in the end."""
        while True:
            await self._ask(seat, child)
            if child.hangs(self.settings) and not child.hung:
                child.hung = True
                self.log(
                    "error", "worker hangs, it is killed", worker=f"w{seat.index}", pid=child.pid, silent=child.silent
                )
                child.kill()
            await asyncio.sleep(LOOK_EVERY if child.state in {"unknown", "starting"} else ASK_EVERY)

    async def _ask(self, seat: Seat, child: Child) -> None:
        await child.ask()
        if child.process.returncode is not None:
            return
        serves = child.state == "serving"
        if self._distributor is not None:
            # One that hangs gets no connections, and one that drains lets its own go. Before the first limits have come
            # from a control plane, which may be never, a worker that starts says so: who asks should not wait for it.
            says_so = self._xds is not None and self._xds.latest is None and child.state == "starting"
            self._distributor.taking(child.key, (serves or says_so) and child is not seat.leaving)
        if child.snapshot is None:
            self._totals.silent(str(child.pid))
            return
        self._totals.update(str(child.pid), child.metrics(speaks=child is seat.current))
        if serves and not self._ever_served:
            self._ever_served = True
            self._notify.ready(self._status())

    async def _hand_limits(self, number: int, data: bytes) -> None:
        """Give limits of a control plane to all workers; returns when those that answer have taken them."""
        for child in self._children():
            child.limits(number, data)
        ends = time.monotonic() + LIMITS_TIME
        while time.monotonic() < ends:
            late = [(s, c) for s in self._seats for c in s.children() if not c.took(number)]
            if not late:
                return
            await asyncio.gather(*(self._ask(seat, child) for seat, child in late))
            await asyncio.sleep(LOOK_EVERY / 5)

    async def _rebalance(self) -> None:
        while self._distributor is not None:
            await asyncio.sleep(1.0)
            self._distributor.rebalance()

    async def _signs_of_life(self) -> None:
        while (every := self._notify.watchdog) is not None:
            self._notify.alive()
            await asyncio.sleep(every)

    # What is told

    def _children(self) -> list[Child]:
        return [child for seat in self._seats for child in seat.children()]

    async def metrics(self) -> Totals:
        """Fresh totals, with what only the supervisor counts."""
        # One that gave no answer last time is starting or hangs, and would keep whoever asks waiting.
        asked = [(s, c) for s in self._seats for c in s.children() if c.snapshot is not None]
        await asyncio.gather(*(self._ask(seat, child) for seat, child in asked))
        counts = self._distributor.counts() if self._distributor is not None else {}
        counters, gauges = self._xds.metrics() if self._xds is not None else ([], [])
        counters += [["seawall_worker_restarts_total", [why], n] for why, n in self._restarts.items()]
        gauges += [["seawall_connections", [f"w{index}"], count] for index, count in counts.items()]
        own = {"counters": counters, "gauges": gauges}
        self._totals.update("supervisor", own)
        return self._totals

    async def errand(self, question: Question) -> Page | None:
        """Have a worker answer; None when none does."""
        serving = [seat.current for seat in self._seats if seat.current is not None and seat.current.state == "serving"]
        self._turn += 1
        if not serving:
            return None
        child = serving[self._turn % len(serving)]
        return await child.errands.ask(question, ERRAND_TIME) if child.errands is not None else None

    def healthy(self) -> bool:
        """What /healthcheck says: any worker serves, with what the settings ask for beside that."""
        limit = self.settings.limit
        said = [c.snapshot for c in self._children() if c.snapshot is not None and c.state == "serving"]
        return (
            bool(said)
            and not self._stopping.is_set()
            and (not limit.needs_rules or any(snapshot["domains"] for snapshot in said))
            and (not limit.needs_store or any(snapshot["store_up"] for snapshot in said))
        )

    def _status(self) -> str:
        serving = sum(seat.current is not None and seat.current.state == "serving" for seat in self._seats)
        return f"{serving} of {len(self._seats)} workers serve"

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether any worker serves, and the detail: workers, store, policy, restarts."""
        workers = {f"w{seat.index}": seat.told() for seat in self._seats}
        ready = any(w["state"] == "serving" for w in workers.values()) and not self._stopping.is_set()
        roll = self._roll
        return ready, {
            "ready": ready,
            "workers": workers,
            "pid": os.getpid(),
            "restart": {"phase": roll.phase.value, "done": roll.done, "of": roll.places, "why": roll.why}
            if roll
            else None,
            "restarts": self._rolls,
            "orphans": len(self._orphans.alive()),
            "xds": self._xds.told() if self._xds is not None else None,
        }

"""Workers that are killed, stopped, told to leave and started again at random, under load: everything finishes (C1)."""

import asyncio
import random  # noqa: TID251 - the seed is printed with a failure
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.forking.freezing import freeze
from tests.scenarios.support import together
from tests.workers.processes import Process, notes
from tests.workers.support import attempts, sound

import holdfast as hf

pytestmark = pytest.mark.slow
WORKERS = 3
INSTANCES = 50
OPTIONS = ("--lease", "1", "--no-same-host", "--drain-timeout", "1")


class Storm:
    """A few workers, and what happens to them."""

    def __init__(self, store: str, chance: random.Random, stack: ExitStack) -> None:
        self._store, self._chance, self._stack = store, chance, stack
        self._workers = [self._start() for _ in range(WORKERS)]
        self._frozen: list[Process] = []
        self.happened: dict[str, int] = {}

    def _start(self) -> Process:
        process = Process(self._store, "worker", "tests.workers.app", *OPTIONS)
        self._stack.callback(process.end)
        return process

    def blow(self) -> None:
        """One thing that happens to one of them; whoever is gone is followed by another."""
        at = self._chance.randrange(WORKERS)
        victim = self._workers[at]
        what = self._chance.choice(["killed", "drained", "stopped", "frozen", "spared"])
        self.happened[what] = self.happened.get(what, 0) + 1
        if what == "killed":
            victim.kill()
        elif what == "drained":
            victim.send_signal(signal.SIGTERM)
        elif what == "stopped":
            victim.send_signal(signal.SIGTERM)
            victim.send_signal(signal.SIGTERM)
        elif what == "frozen" and not self._frozen and Path(f"{self._store}-lock").exists() and victim.is_running:
            freeze(victim, self._store)
            self._frozen.append(victim)
        if what not in ("frozen", "spared"):
            self._workers[at] = self._start()
        if self._frozen and self._chance.random() < 0.3:
            self._frozen.pop().send_signal(signal.SIGCONT)

    def calm(self) -> None:
        for process in self._frozen:
            process.send_signal(signal.SIGCONT)


def test_invariant_22_a_storm_of_signals_stops_nothing(store: str) -> None:
    seed = time.time_ns()  # noqa: TID251 - printed, to repeat the run
    chance = random.Random(seed)  # noqa: S311 - not a secret

    async def scenario(stack: ExitStack) -> None:
        async with await hf.connect(store) as client:
            storm = Storm(store, chance, stack)
            started = [f"it {number}" for number in range(INSTANCES)]
            for name in started:
                await client.start("storms", name, id=name)
                await asyncio.sleep(chance.uniform(0, 0.2))
                await asyncio.to_thread(storm.blow)
            storm.calm()
            for name in started:
                assert await client.get(name).result(timeout=60) == [f"{name} {at}" for at in range(6)], f"seed {seed}"
            for name in started:
                done = [each for each in await attempts(client, name) if each.state == "COMPLETED"]
                assert len(done) == 6, f"seed {seed}"
            assert storm.happened.keys() >= {"killed", "drained", "stopped", "frozen"}, "the faults never happened"

    with ExitStack() as stack:
        together(scenario(stack), seconds=150)
    assert len(notes(store)) >= 6 * INSTANCES
    sound(store)

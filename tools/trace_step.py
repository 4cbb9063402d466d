"""``python -m tools.trace_step``: the calls of one warm step on SQLite, as a tree, with three counts.

A warm step begins when the body of one activity returns and ends when the body of the next one begins. The counts are
the calls inside of the package, the modules that take part, and how often the path changes from one package to another.
``--counts`` prints only the counts.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import holdfast as hf

PACKAGE: Final = str(Path(hf.__file__).parent)
WARM_STEPS: Final = 5
"""Steps before the one that is traced: by then statements are cached, and the code of the workflow is live."""


class Call(NamedTuple):
    """One call of a function of the package, on one thread."""

    thread: str
    depth: int
    module: str
    function: str


class Tracer:
    """Collects the calls of all threads between `start` and `stop`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._is_on = False

    def start(self) -> None:
        """Collect from here on."""
        self.calls.clear()
        self._is_on = True

    def stop(self) -> None:
        """Collect no longer."""
        self._is_on = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Watch this thread and those that are started inside."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if not self._is_on or event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        module = Path(frame.f_code.co_filename).relative_to(PACKAGE).with_suffix("")
        self.calls.append(Call(threading.current_thread().name, _depth(frame), str(module), frame.f_code.co_qualname))


def _depth(frame: FrameType) -> int:
    """How many calls of the package are above this one on its thread."""
    depth = 0
    above = frame.f_back
    while above is not None:
        depth += above.f_code.co_filename.startswith(PACKAGE)
        above = above.f_back
    return depth


def trace() -> list[Call]:
    """Run a workflow and trace one of its steps."""
    tracer = Tracer()

    @hf.activity
    async def step(number: int) -> int:
        tracer.stop()
        if number == WARM_STEPS:
            tracer.start()  # what follows is the return of this body
        return number

    @hf.workflow
    async def steps() -> None:
        for number in range(WARM_STEPS + 2):
            await step(number)

    async def run(folder: str) -> list[Call]:
        async with hf.Engine(f"{folder}/trace.db", workflows=[steps], activities=[step]) as engine:
            await engine.run(steps)
        return list(tracer.calls)

    with tempfile.TemporaryDirectory() as folder, tracer.installed():
        return asyncio.run(run(folder))


def counts(calls: list[Call]) -> tuple[int, int, int]:
    """Calls, modules, and changes of the package along the path."""
    packages = [call.module.partition("/")[0] for call in calls]
    changes = sum(before != after for before, after in pairwise(packages))
    return len(calls), len({call.module for call in calls}), changes


def main() -> None:
    """Print the tree and the counts."""
    calls = trace()
    if "--counts" not in sys.argv:
        least = min(call.depth for call in calls)
        for call in calls:
            print(f"{'  ' * (call.depth - least)}{call.module}: {call.function}")
        print()
    made, modules, changes = counts(calls)
    print(f"{made} calls, {modules} modules, {changes} changes of package")


if __name__ == "__main__":
    main()

"""``python -m tools.trace_step``: the calls of one warm step, as a tree or as a drawing, with three counts.

A warm step begins when the body of one activity returns and ends when the body of the next one begins. The counts are
the calls inside of the package, the modules that take part, and how often the path changes from one package to another.

``--postgres`` traces a step on PostgreSQL, with a server that is started for it; ``--flow`` traces a step of a flow.
``--counts`` prints only the counts, ``--mermaid`` a sequence diagram of the calls between folders. ``make docs`` writes
the diagrams of all three into ``docs/reference/steps.md``.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import holdfast as hf

PACKAGE: Final = str(Path(hf.__file__).parent)
WARM_STEPS: Final = 5
"""Steps before the one that is traced: by then statements are cached, and the code of the workflow is live."""
TRACES: Final = 3
"""A heartbeat or another background task may fall into a trace; the shortest of several traces has none."""
LISTENER: Final = "ListenNotifier."
"""The thread that receives notifications runs beside the step, at a different place in each trace."""
LOOP: Final = "event loop"
"""The caller of everything that no function of the package calls."""
HELPERS: Final = ("background", "fork", "runtime/platform")
CLOCK: Final = "now_ms"
"""Task supervision, ids and clocks are left out of the drawings."""


class Call(NamedTuple):
    """One call of a function of the package, on one thread."""

    thread: str
    depth: int
    module: str
    function: str

    @property
    def folder(self) -> str:
        """The folder of the module; a module beside the folders stands for itself."""
        return self.module.rpartition("/")[0] or self.module


class Tracer:
    """Collects the calls of all threads between `start` and `stop`.

    It is a trace function, because the determinism guard replaces the profile function while workflow code runs.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._is_on = False

    def start(self) -> None:
        """Begin to collect."""
        self.calls.clear()
        self._is_on = True

    def stop(self) -> None:
        """Collect no more calls."""
        self._is_on = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Trace this thread and the threads that are started inside."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if not self._is_on or event != "call" or not code.co_filename.startswith(PACKAGE) or _is_inline(code.co_name):
            return
        if code.co_qualname.startswith(LISTENER):
            return
        module = Path(code.co_filename).relative_to(PACKAGE).with_suffix("")
        self.calls.append(Call(threading.current_thread().name, _depth(frame), str(module), code.co_qualname))


def _is_inline(name: str) -> bool:
    """Whether a code object is a comprehension or a generator expression of its function."""
    return name in ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


def _depth(frame: FrameType) -> int:
    """How many calls of the package are above this one on its thread."""
    depth = 0
    above = frame.f_back
    while above is not None:
        code = above.f_code
        depth += code.co_filename.startswith(PACKAGE) and not _is_inline(code.co_name)
        above = above.f_back
    return depth


def trace(*, postgres: bool = False, flow: bool = False) -> list[Call]:
    """Trace one warm step: the shortest of several runs."""
    with _stores(postgres=postgres) as stores:
        return min((_trace_once(next(stores), flow=flow) for _ in range(TRACES)), key=len)


@contextmanager
def _stores(*, postgres: bool) -> Generator[Iterator[str]]:
    """New stores, as many as are asked for."""
    if not postgres:
        with tempfile.TemporaryDirectory() as folder:
            yield (f"{folder}/trace-{number}.db" for number in range(TRACES))
        return
    from tests.postgres.places import begin_run, end_run  # noqa: PLC0415 - needs psycopg, SQLite does not
    from tests.postgres.server import Place, server  # noqa: PLC0415

    begin_run()
    try:
        with server() as url:
            yield (Place(url, f"trace_{number}").url for number in range(TRACES))
    finally:
        end_run()


def _trace_once(store: str, *, flow: bool) -> list[Call]:
    tracer = Tracer()

    @hf.activity
    async def step(number: int) -> int:
        tracer.stop()
        if number == WARM_STEPS:
            tracer.start()  # what follows is the return of this body
        return number + 1

    @hf.workflow
    async def steps() -> int:
        number = 0
        for _ in range(WARM_STEPS + 2):
            number = await step(number)
        return number

    async def run() -> list[Call]:
        if flow:
            graph = hf.Flow.parse(_chain())
            async with hf.Engine(store, flows=[graph], activities=[step]) as engine:
                await engine.run(graph)
        else:
            async with hf.Engine(store, workflows=[steps], activities=[step]) as engine:
                await engine.run(steps)
        return list(tracer.calls)

    with tracer.installed():
        return asyncio.run(run())


def _chain() -> str:
    """The same steps as a flow: a chain of nodes, each of which gets the output of the node before."""
    lines = ["flow: chain", "activities:", "  n0: {trigger: true}", "  n1: {run: step, input: {number: 0}, after: n0}"]
    lines += [
        f'  n{at}: {{run: step, input: {{number: "n{at - 1}.output"}}, after: n{at - 1}}}'
        for at in range(2, WARM_STEPS + 3)
    ]
    return "\n".join(lines)


def counts(calls: Sequence[Call]) -> tuple[int, int, int]:
    """Calls, modules, and changes of the package along the path."""
    packages = [call.module.partition("/")[0] for call in calls]
    changes = sum(before != after for before, after in pairwise(packages))
    return len(calls), len({call.module for call in calls}), changes


def counts_text(calls: Sequence[Call]) -> str:
    """The counts as a sentence without a full stop."""
    made, modules, changes = counts(calls)
    return f"{made} calls, {modules} modules, {changes} changes of package"


def tree(calls: Sequence[Call]) -> str:
    """Every call, indented below its caller."""
    least = min(call.depth for call in calls)
    return "\n".join(f"{'  ' * (call.depth - least)}{call.module}: {call.function}" for call in calls)


class Crossing(NamedTuple):
    """A call from one folder into another."""

    caller: str
    callee: str
    function: str


def crossings(calls: Sequence[Call]) -> list[Crossing]:
    """The calls between folders, in order, without those of helpers."""
    found: list[Crossing] = []
    above: dict[str, list[Call]] = {}
    for call in calls:
        callers = above.setdefault(call.thread, [])
        while callers and callers[-1].depth >= call.depth:
            callers.pop()
        caller = callers[-1].folder if callers else LOOP
        callers.append(call)
        is_helper = call.module in HELPERS or caller in HELPERS or call.function.endswith(CLOCK)
        if call.folder != caller and not is_helper:
            found.append(Crossing(caller, call.folder, call.function.replace(".<locals>", "")))
    return found


def mermaid(calls: Sequence[Call]) -> str:
    """A sequence diagram of the calls between folders. Equal calls in a row are one arrow."""
    path = crossings(calls)
    folders = dict.fromkeys(folder for crossing in path for folder in (crossing.caller, crossing.callee))
    names = {folder: f"p{number}" for number, folder in enumerate(folders)}
    lines = ["sequenceDiagram"]
    lines += [f"    participant {name} as {folder}" for folder, name in names.items()]
    for crossing, equal in groupby(path):
        count = len(list(equal))
        times = f" ({count} times)" if count > 1 else ""
        lines.append(f"    {names[crossing.caller]}->>{names[crossing.callee]}: {crossing.function}{times}")
    return "\n".join(lines)


PAGE: Final = """\
<!-- Written by `make docs` from traces of the code. Do not edit. -->

# One warm step

The path from the return of one activity body to the begin of the next one, as `python -m tools.trace_step` sees it. An
arrow is a call from one folder of `src/holdfast` into another; calls inside of a folder, clocks and task supervision
are left out.
"""
SECTIONS: Final[dict[str, dict[str, bool]]] = {
    "Code, on SQLite": {},
    "Code, on PostgreSQL": {"postgres": True},
    "A flow, on SQLite": {"flow": True},
}


def page() -> str:
    """The reference page with the three drawings."""
    parts = [PAGE]
    for title, options in SECTIONS.items():
        calls = trace(**options)
        parts.append(f"## {title}\n\n{counts_text(calls)}.\n\n```mermaid\n{mermaid(calls)}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.trace_step", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    parser.add_argument("--flow", action="store_true", help="a flow instead of code")
    parser.add_argument("--counts", action="store_true", help="only the counts")
    parser.add_argument("--mermaid", action="store_true", help="a sequence diagram of the calls between folders")
    options = parser.parse_args()
    calls = trace(postgres=options.postgres, flow=options.flow)
    if options.mermaid:
        print(mermaid(calls))
    elif not options.counts:
        print(tree(calls), end="\n\n")
    if not options.mermaid:
        print(counts_text(calls))


if __name__ == "__main__":
    main()

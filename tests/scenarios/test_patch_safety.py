"""R15: a patch is called safe exactly when every open history replays on code in which its new branch is all that is
left. Random code, random instances, and the replayer of the test kit as the judge."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.scenarios.support import engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.patches import PatchesReport, count_patches
from holdfast.authoring.registry import Registry
from holdfast.compose import checkable, open_store
from holdfast.core.history import EventAwaited, PatchApplied
from holdfast.core.lifecycle import INSTANCE_FINAL
from holdfast.errors import HistoryMismatch
from holdfast.runtime.platform import Platform

pytestmark = pytest.mark.slow

Step = Any
"""The name of an activity, "go" for a wait, ("patch", name, new steps, old steps) or ("repeat", times, steps)."""
BEFORE, CALL, REMOVED = "before", "call", "removed"
NAMES: tuple[str, ...] = ("p", "q", "r")
SIMPLE = st.sampled_from(["one", "two", "go"])


@hf.activity
async def one() -> None: ...


@hf.activity
async def two() -> None: ...


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking, which takes minutes with an engine: the failing program is short as it is."""
ACTIVITIES = {"one": one, "two": two}
BRANCH = st.lists(SIMPLE, max_size=2)
PATCH = st.tuples(st.just("patch"), st.sampled_from(NAMES), BRANCH, BRANCH)
LOOP = st.tuples(st.just("repeat"), st.integers(1, 3), st.lists(SIMPLE | PATCH, min_size=1, max_size=3))
PROGRAM = st.lists(SIMPLE | PATCH | LOOP, min_size=2, max_size=6)


async def take(steps: Sequence[Step], mode: Mapping[str, str], called: dict[str, bool]) -> None:
    for step in steps:
        if step == "go":
            await hf.event("go")
        elif isinstance(step, str):
            await ACTIVITIES[step]()
        elif step[0] == "repeat":
            for _ in range(step[1]):
                await take(step[2], mode, called)
        else:
            _, name, new, old = step
            kind = mode.get(name, BEFORE)
            if kind == CALL:
                called[name] = hf.patched(name)
            is_new = kind == REMOVED or (kind == CALL and called[name])
            await take(new if is_new else old, mode, called)


def code_of(
    steps: Sequence[Step], mode: Mapping[str, str], called: dict[str, bool] | None = None
) -> hf.Workflow[..., Any]:
    @hf.workflow(name="order")
    async def order() -> None:
        await take(steps, mode, {} if called is None else called)
        await hf.event("end")

    return order


def is_quiet(path: Path) -> bool:
    """Whether every instance waits for an event."""
    found = rows(path, "SELECT number, state FROM instances")
    return not rows(path, "SELECT 1 FROM inbox") and all(
        state in INSTANCE_FINAL or any(isinstance(event, EventAwaited) for event in history_of(path, number)[-1:])
        for number, state in found
    )


async def run(path: Path, code: hf.Workflow[..., Any], started: Sequence[str], events: Sequence[str]) -> None:
    async with engine_of(path, code, one, two) as engine:
        for each in started:
            await engine.start(code, id=each)
        await until(lambda: is_quiet(path))
        for each in events:
            waits = [event for event in history_of(path, number_of(path, each)) if isinstance(event, EventAwaited)]
            if waits[-1].name == "go":
                await engine.get(each).raise_event("go")
                await until(lambda: is_quiet(path))


def number_of(path: Path, instance_id: str) -> int:
    [(number,)] = rows(path, "SELECT number FROM instances WHERE id = ?", instance_id)
    return int(number)


def ignore(done: int, total: int) -> None:
    """No progress is shown."""
    del done, total


async def report_of(path: Path, code: hf.Workflow[..., Any]) -> PatchesReport:
    store = open_store(path, "full", Platform())
    store.open_for_reading()
    try:
        registry = Registry(workflows=[code], activities=[one, two])
        return await count_patches(checkable(store), registry, None, ignore)
    finally:
        await store.close()


def replays(code: hf.Workflow[..., Any], history: str) -> bool:
    try:
        hf.testing.Replayer(workflows=[code]).replay(history)
    except HistoryMismatch:
        return False
    return True


@example([("patch", "p", ["one"], ["one"]), "go"], [], [], False).via("the old branch has the same steps")
@example([("patch", "p", ["one"], ["two"]), "go"], [], [], False).via("the old branch has other steps")
@example(["go", ("patch", "p", ["one"], ["two"])], [], ["old-0"], False).via("one on the new branch, one before it")
@example(["go", ("patch", "p", ["one"], ["two"])], [], [], True).via("a change without a patch")
@given(
    PROGRAM,
    st.lists(st.sampled_from(["old-0", "old-1"]), max_size=4),
    st.lists(st.sampled_from(["old-0", "old-1", "new-0", "new-1"]), max_size=6),
    st.booleans(),
)
@settings(max_examples=25, deadline=None, phases=PHASES)
def test_R15_a_patch_is_safe_exactly_when_every_open_history_replays_without_it(
    program: list[Step], before: list[str], after: list[str], is_broken: bool
) -> None:
    async def scenario(path: Path) -> None:
        everything = dict.fromkeys(NAMES, CALL)
        await run(path, code_of(program, {}), ["old-0", "old-1"], before)
        await run(path, code_of(program, everything), ["new-0", "new-1"], after)
        assert rows(path, "SELECT id FROM instances WHERE state = 'BLOCKED'") == [], "patched code fits both"
        today = ["two", *program] if is_broken else program  # a change that nobody has put behind a patch
        histories: dict[str, str] = {}
        async with engine_of(path, code_of(program, everything), one, two) as engine:
            for (name,) in rows(path, "SELECT id FROM instances"):
                histories[name] = await engine.get(name).export_history()
        report = await report_of(path, code_of(today, everything))
        assert report.unknown == {}
        broken = [name for name, history in histories.items() if not replays(code_of(today, everything), history)]
        assert report.broken == ({"order": (len(broken), tuple(broken))} if broken else {})
        found = {item.patch: item for item in report.patches}
        for name, item in found.items():
            without = [
                each
                for each, history in histories.items()
                if not replays(code_of(today, {**everything, name: REMOVED}), history)
            ]
            assert item.in_the_way == len(without), name
            assert item.is_safe == (without == [])
            assert set(item.examples) >= set(without) - set(broken)
            new, old = 0, 0
            for each, history in histories.items():
                called: dict[str, bool] = {}
                replays(code_of(today, everything, called), history)
                is_recorded = PatchApplied(name=name) in history_of(path, number_of(path, each))
                new += is_recorded
                old += not is_recorded and name in called
            assert (item.new, item.old, item.undecided) == (new, old, len(histories) - new - old)

    with tempfile.TemporaryDirectory() as folder:
        together(scenario(Path(folder, "it.db")), seconds=60)

"""``holdfast verify`` on streams: damage is found, whether values were applied or still wait (L14, L15)."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, rows, until
from tests.unit.cli.commands import sql

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.audit.problems import Rule

Event = dict[str, Any]
WORDS = ["one", "two", "three"]


@hf.activity
async def words() -> AsyncIterator[str]:
    for word in WORDS:
        yield word


@hf.workflow
async def read() -> list[str]:
    return [word async for word in words()]


@hf.workflow
async def read_and_wait() -> str:
    found = [word async for word in words()]
    return await hf.event("go", str) + found[0]


async def make(path: Path) -> None:
    """One stream was read to its end, one by a workflow that is still open, and the values of one wait in an inbox."""
    async with engine_of(path, read, read_and_wait, words) as engine:
        await engine.run(read, id="done")
        await engine.start(read_and_wait, id="open")
        await until(lambda: rows(path, "SELECT waits FROM instances WHERE id = 'open'") == [('["go"]',)])
    async with engine_of(path, read) as engine:
        await engine.start(read, id="waiting")
    async with engine_of(path, words):
        await until(lambda: rows(path, "SELECT count(*) FROM attempts WHERE state = 'COMPLETED'") == [(3,)])


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    asyncio.run(make(path))
    assert audit(path) == []
    return path


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    for suffix in ("", "-wal"):
        if (source := Path(f"{sound}{suffix}")).exists():
            shutil.copy(source, f"{tmp_path / 'copy.db'}{suffix}")
    return tmp_path / "copy.db"


def blamed(store: Path) -> set[tuple[str, Rule]]:
    return {(problem.instance, problem.rule) for problem in audit(store)}


@pytest.mark.parametrize(
    ("instance", "change"),
    [
        ("done", "ledger = 888000003000003"),  # a value fewer than the history has
        ("open", "ledger = 888000003000003"),
        ("open", "ledger = 888000005000005"),  # a value more
        ("open", "ledger = 888000005000004"),  # one that is nowhere
        ("waiting", "ledger = 889000004000001"),  # one left that still waits
        ("waiting", "ledger = 889000005000000"),  # one that is nowhere
        ("waiting", "ledger = 889000003000000"),  # one that never came
    ],
)
def test_L14_digits_that_count_other_values_than_there_are(store: Path, instance: str, change: str) -> None:
    sql(store, f"UPDATE attempts SET {change} WHERE number = (SELECT number FROM instances WHERE id = ?)", instance)  # noqa: S608
    assert (instance, Rule.LEDGER_AGREES) in blamed(store)


def test_L14_values_that_are_gone_from_the_inbox(store: Path) -> None:
    sql(store, "DELETE FROM inbox WHERE row = (SELECT min(row) FROM inbox)")
    assert ("waiting", Rule.LEDGER_AGREES) in blamed(store)


EDITS: list[tuple[str, Callable[[Event], Event | None], Rule]] = [
    ("done", lambda _: None, Rule.LEDGER_AGREES),
    ("open", lambda _: None, Rule.LEDGER_AGREES),
    ("open", lambda event: event | {"number": 1}, Rule.ONE_OUTCOME),
    ("open", lambda event: event | {"activity": 7}, Rule.ONE_OUTCOME),
    ("open", lambda event: event | {"more": [*event.get("more", []), {"data": "four"}]}, Rule.LEDGER_AGREES),
    ("open", lambda event: event | {"value": {"reference": "abc"}}, Rule.PAYLOADS_THERE),
    ("open", lambda event: event | {"more": [{"reference": "abc"}]}, Rule.PAYLOADS_THERE),
]


@pytest.mark.parametrize(("instance", "edit", "rule"), EDITS)
def test_L15_values_of_the_history_that_are_not_what_was_delivered(
    store: Path, instance: str, edit: Callable[[Event], Event | None], rule: Rule
) -> None:
    """The last message with values of a stream is changed, or gone."""
    where = "number = (SELECT number FROM instances WHERE id = ?) AND CAST(events AS TEXT) LIKE '%activity_yielded%'"
    turn, data = sql(store, f"SELECT turn, events FROM history WHERE {where} ORDER BY turn DESC LIMIT 1", instance)[0]  # noqa: S608
    events: list[Event] = json.loads(data)
    at = max(at for at, event in enumerate(events) if event["event"] == "activity_yielded")
    changed = edit(events[at])
    events[at : at + 1] = [{"event": "timer_cancelled", "timer": 0}] if changed is None else [changed]
    encoded = json.dumps(events, separators=(",", ":")).encode()
    sql(store, f"UPDATE history SET events = ? WHERE {where} AND turn = ?", encoded, instance, turn)  # noqa: S608
    assert (instance, rule) in blamed(store)

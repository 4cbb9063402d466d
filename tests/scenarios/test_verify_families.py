"""``holdfast verify`` of parents and children: sound after real runs, and every kind of damage is found and named."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.damage import CHILD_DAMAGE
from tests.scenarios.families import ALL, sleeps, starts
from tests.scenarios.support import engine_of, together, until
from tests.unit.cli.commands import sql

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.audit.problems import Rule

Events = list[dict[str, Any]]


@hf.workflow
async def mixed() -> str:
    """Children that completed, failed, were refused and were cancelled, and one that goes on."""
    await hf.start(sleeps, id="goes-on")
    cancelled = await hf.start(sleeps)
    cancelled.cancel("enough")
    found = await asyncio.gather(cancelled, fails(), hf.start(sleeps, id="goes-on"), return_exceptions=True)
    await says_so(len(found))
    return await hf.event("never", str)


@hf.workflow
async def fails() -> None:
    raise ValueError("no")


@hf.workflow
async def says_so(count: int) -> str:
    return f"{count} of them"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("families") / "families.db"

    async def make() -> None:
        async with engine_of(path, *ALL, mixed, fails, says_so) as engine:
            parent = await engine.start(mixed, id="parent")
            ended = await engine.start(starts, "sleeps", None, False, "return", id="ended")
            await until(lambda: len(sql(path, "SELECT 1 FROM instances WHERE state = 'RUNNING'")) >= 4)
            await ended.terminate()
            while (await parent.describe()).collation_key != "877765":  # noqa: ASYNC110 - no signal tells of it
                await asyncio.sleep(0.002)

    together(make())
    return path


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        if (source := Path(f"{sound}{suffix}")).exists():
            shutil.copy(source, f"{copy}{suffix}")
    return copy


def test_families_in_every_phase_are_sound(sound: Path) -> None:
    assert audit(sound) == []
    states: dict[str, str] = dict(sql(sound, "SELECT id, state FROM instances"))
    assert states == {
        "parent": "RUNNING",
        "goes-on": "RUNNING",
        "parent/1/1": "CANCELLED",
        "parent/1/2": "FAILED",
        "parent/1/4": "COMPLETED",
        "ended": "TERMINATED",
        "ended/1/0": "TERMINATED",
    }


def found_in(store: Path) -> set[tuple[str, Rule]]:
    return {(problem.instance, problem.rule) for problem in audit(store)}


def number_of(store: Path, instance: str) -> int:
    number: int = sql(store, "SELECT number FROM instances WHERE id = ?", instance)[0][0]
    return number


@pytest.mark.parametrize(("rule", "blamed", "instance", "statement"), CHILD_DAMAGE)
def test_damage_of_a_family_is_found_and_named(
    store: Path, rule: Rule, blamed: str, instance: str, statement: str
) -> None:
    for part in statement.split(";"):
        bindings = (number_of(store, instance),) if "?1" in part else ()
        sql(store, part, *bindings)
    assert (blamed, rule) in found_in(store), audit(store)


def without(kind: str) -> Callable[[Events], Events]:
    return lambda events: [event for event in events if event["event"] != kind]


def changed(kind: str, **fields: Any) -> Callable[[Events], Events]:
    return lambda events: [event | fields if event["event"] == kind else event for event in events]


def twice(kind: str) -> Callable[[Events], Events]:
    return lambda events: [each for event in events for each in ([event] * 2 if event["event"] == kind else [event])]


@pytest.mark.parametrize(
    ("rule", "edit"),
    [
        (Rule.ONE_OUTCOME, twice("child_completed")),
        (Rule.ONE_OUTCOME, twice("child_scheduled")),
        (Rule.ONE_OUTCOME, changed("child_failed", child=9)),
        (Rule.CHILDREN_TIED, without("child_refused")),
        (Rule.CHILDREN_TIED, changed("child_scheduled", name="other")),
        (Rule.CHILDREN_ANSWER, without("child_completed")),
        (Rule.CHILDREN_ANSWER, without("child_stopped")),
        (Rule.CHILDREN_ANSWER, changed("child_completed", result={"data": "other"})),
        (Rule.CHILDREN_ANSWER, changed("child_stopped", state="TERMINATED")),
        (Rule.CHILDREN_ANSWER, changed("child_stopped", reason="another")),
    ],
)
def test_damage_of_the_history_of_a_parent_is_found_and_named(
    store: Path, rule: Rule, edit: Callable[[Events], Events]
) -> None:
    number = number_of(store, "parent")
    edits = 0
    for turn, data in sql(store, "SELECT turn, events FROM history WHERE number = ?", number):
        edited = edit(json.loads(data))
        edits += edited != json.loads(data)
        encoded = json.dumps(edited, separators=(",", ":")).encode()
        sql(store, "UPDATE history SET events = ? WHERE number = ? AND turn = ?", encoded, number, turn)
    assert edits
    assert ("parent", rule) in found_in(store), audit(store)

"""A store that an earlier release wrote opens with the code of today, and every open instance in it ends as it should.

`write.py` says how the stores are made.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.postgres.server import Place
from tests.releases import app
from tests.releases.write import SCHEMA

import holdfast as hf
from holdfast import compose
from holdfast.audit.auditor import audit
from holdfast.storage.relational.raw_tables import RawAttempt, RawInstance

FOLDER = Path(__file__).parent
RELEASES = sorted(path.name for path in FOLDER.iterdir() if (path / "store.sqlite").exists())
BOUND_SECONDS = 60.0

RESULTS: dict[str, Any] = {
    "begins_later": 22,
    "blocks": 28,
    "continues": 2,
    "family": 15,
    "family-child": 12,
    "family-code": 15,
    "keeps": 12,
    "listens": "early late",
    "many": [2, 4, 6],
    "parent": 28,
    "queued": 4,
    "reads": app.LARGE,
    "retries": 2,
    "rounds": 32,
    "runs_while_the_worker_dies": 5,
    "sleeps": 6,
    "streams": list(range(app.PARTS)),
    "updates": [9],
    "waits": 10,
}
CANCELLED = {"cleans_up"}
BEGUN_BY_THE_TEST = {"family-code"}
STATES = {
    "blocks": "BLOCKED",
    "begins_later": "REQUESTED",
    "cleans_up": "CANCEL_REQUESTED",
}
"""The states in the store that are not RUNNING."""


def test_there_are_stores() -> None:
    assert RELEASES


@pytest.fixture(params=RELEASES)
def sqlite_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    copy = tmp_path / "store"
    shutil.copy(FOLDER / request.param / "store.sqlite", copy)
    return str(copy)


@pytest.fixture(params=RELEASES)
def postgres_store(request: pytest.FixtureRequest, postgres: Place) -> str:
    dump = (FOLDER / request.param / "postgres.dump").read_text("utf-8").replace(SCHEMA, postgres.schema)
    with postgres.connect() as connection:
        connection.execute(dump.encode())
    return postgres.url


@pytest.mark.timeout(120)
def test_a_sqlite_store_of_an_earlier_release_is_finished(sqlite_store: str) -> None:
    _finish(sqlite_store)


@pytest.mark.timeout(120)
def test_a_postgresql_store_of_an_earlier_release_is_finished(postgres_store: str) -> None:
    _finish(postgres_store)


def _finish(store: str) -> None:
    asyncio.run(_migrate(store))
    assert audit(store) == []
    before = states(store)
    opened = RESULTS.keys() - BEGUN_BY_THE_TEST | CANCELLED
    assert opened <= before.keys()
    assert {name: before[name] for name in opened} == {name: STATES.get(name, "RUNNING") for name in opened}
    assert {"READY", "RUNNING", "FAILED", "COMPLETED"} <= attempt_states(store)

    async def bounded() -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            await _to_the_end(store)

    asyncio.run(bounded())
    assert audit(store) == []
    expected = dict.fromkeys(RESULTS, "COMPLETED") | dict.fromkeys(CANCELLED, "CANCELLED")
    assert {name: state for name, state in states(store).items() if name in expected} == expected
    assert set(states(store).values()) == {"COMPLETED", "CANCELLED"}


async def _migrate(store: str) -> None:
    """A client migrates the store and runs nothing of it: an audit reads stores of this release only."""
    async with await hf.connect(store):
        pass


async def _to_the_end(store: str) -> None:
    known: dict[str, Any] = {"workflows": app.WORKFLOWS, "activities": app.ACTIVITIES, "flows": app.FLOWS}
    async with hf.Engine(store, **known) as engine:

        async def raise_event(target: str, name: str, *value: Any, id: str | None = None) -> None:  # noqa: A002
            await engine.get(target).raise_event(name, *value, id=id)

        for target in ("updates", "keeps", "continues", "reads"):
            await raise_event(target, "go")
        await raise_event("listens", "go", "late")
        (child,) = await engine.get("parent").children()
        await raise_event(child.id, "go", 10)
        await raise_event("waits", "answer", 5)
        await raise_event("family-child", "answer", 6)
        for number in range(3):
            await raise_event("rounds", "answer", number, id=f"answer-{number}")
        await _when_it_is_there(lambda: raise_event("family-code", "go", 3))
        assert await engine.get("updates").update("take", 9, id="u1") == 1, "the answer to an update that was accepted"
        for name, result in RESULTS.items():
            assert await engine.get(name).result() == result, name
        for name in CANCELLED:
            with pytest.raises(hf.WorkflowCancelled):
                await engine.get(name).result()


async def _when_it_is_there(action: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        try:
            return await action()
        except hf.InstanceNotFound:
            await asyncio.sleep(0.01)


def states(store: str) -> dict[str, str]:
    tables = compose.open_tables(store)
    try:
        return {each.id: each.state for each in tables.instances() if isinstance(each, RawInstance)}
    finally:
        tables.close()


def attempt_states(store: str) -> set[str]:
    tables = compose.open_tables(store)
    try:
        return {each.state for each in tables.attempts() if isinstance(each, RawAttempt)}
    finally:
        tables.close()

"""Cancellation goes down to children that are awaited, and comes up from children as a typed error (A9)."""

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.families import (
    ALL,
    CACHES,
    awaits_one,
    cancels_its_child,
    is_at,
    never_begun,
    races,
    says_how_it_ended,
    settled,
    shields,
    times_out,
)
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ChildCancelRequested, ChildStopped


@CACHES
def test_A9_cancelling_a_parent_cascades_to_the_child_it_awaits_which_may_clean_up(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            parent = await engine.start(awaits_one, id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE name = 'hangs'"))
            await parent.cancel("enough")
            with pytest.raises(hf.WorkflowCancelled, match="it was cancelled: enough"):
                await parent.result(timeout=10)
            await settled(path, {"it": "CANCELLED", "it/1/0": "CANCELLED"})
            assert ("undo", "COMPLETED") in rows(path, "SELECT name, state FROM attempts")

    together(scenario())


@CACHES
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("cancel", "WorkflowCancelled: it/1/0 was cancelled: not wanted"),
        ("terminate", "WorkflowTerminated: it/1/0 was terminated: not wanted"),
    ],
)
def test_A9_how_a_child_was_ended_reaches_its_parent_as_a_typed_error(
    tmp_path: Path, cache_size: int, end: str, said: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            parent = await engine.start(says_how_it_ended, id="it")
            child = engine.get("it/1/0")
            await is_at(child, "RUNNING")
            await getattr(child, end)("not wanted")
            assert await parent.result(timeout=10) == said
            answers = [event for event in history_of(path, 1) if isinstance(event, ChildStopped)]
            assert len(answers) == 1
        check_tables(path)
        assert audit(path) == []

    together(scenario())


@CACHES
def test_A9_a_wait_that_times_out_asks_the_child_to_end_and_goes_on_at_once(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            found = await engine.run(times_out, id="it")
            assert found == ["too late", "it/1/0 was cancelled: its parent does not wait for it any more"]
            await settled(path, {"it": "COMPLETED", "it/1/0": "CANCELLED"})

    together(scenario())


@CACHES
def test_A9_the_loser_of_a_race_is_cancelled(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            assert await engine.run(races, id="it") == "fast"
            await settled(path, {"it": "COMPLETED", "it/1/0": "CANCELLED", "it/1/1": "COMPLETED"})

    together(scenario())


@CACHES
def test_A9_shield_protects_a_child_from_the_cancellation_of_its_parent(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            parent = await engine.start(shields, id="it")
            await is_at(engine.get("it/1/0"), "RUNNING")
            await parent.cancel()
            await until(lambda: any(event.kind == "cancel_requested" for event in history(path)))
            await engine.get("it/1/0").raise_event("answer", "still here")
            assert await parent.result(timeout=10) == "still here"
            asked = [event for event in history_of(path, 1) if isinstance(event, ChildCancelRequested)]
            assert asked == []
        assert audit(path) == []

    def history(path: Path) -> list[Any]:
        return [type("Seen", (), {"kind": event.__struct_config__.tag}) for event in history_of(path, 1)]

    together(scenario())


@CACHES
def test_A9_a_child_is_cancelled_by_its_handle_once_and_after_its_end_nothing_happens(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            parent = await engine.start(cancels_its_child, id="it")
            await is_at(engine.get("it/1/0"), "RUNNING")
            await parent.raise_event("go")
            assert await parent.result(timeout=10) == ["it/1/0 was cancelled: too old"]
            assert await engine.run(never_begun, id="never") == "never/1/0 was cancelled: changed my mind"
        check_tables(path)
        assert audit(path) == []

    together(scenario())

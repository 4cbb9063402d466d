"""Queries that wait: for a turn on its way to disk (G11), and for a worker that has others to answer, too (C1)."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.held import HeldTurns, store_at
from tests.scenarios.support import engine_of, rows, together

import holdfast as hf
from holdfast.runtime.queries import LOOK_SECONDS


def test_a_query_that_waits_long_for_a_turn_is_answered_once_and_not_if_its_asker_has_gone(tmp_path: Path) -> None:
    calls: list[str] = []

    @hf.workflow
    async def counted() -> None:
        @hf.on_query
        def which(name: str) -> str:
            calls.append(name)
            return name

        await hf.event("go")
        await hf.event("end")

    async def scenario() -> None:
        store = store_at(tmp_path / "shop.db")
        held = HeldTurns(store)
        async with engine_of(store, counted) as engine:
            handle = await engine.start(counted, id="it")
            raised = asyncio.create_task(handle.raise_event("go"))  # it is told with its turn
            await held.is_stuck.wait()
            patient = asyncio.create_task(handle.query("which", "patient"))
            with pytest.raises(TimeoutError):
                await handle.query("which", "hasty", timeout=3.5 * LOOK_SECONDS)
            assert not patient.done()
            held.go_on.set()
            assert await patient == "patient"
            assert calls == ["patient"]
            assert await raised

    together(scenario())


@pytest.mark.parametrize("damage", [b'{"event":', b"[[]]"])
def test_C1_a_question_about_a_damaged_history_is_answered_and_costs_the_others_nothing(
    tmp_path: Path, damage: bytes
) -> None:
    @hf.workflow
    async def answers() -> None:
        hf.on_query("which")(lambda: hf.info().id)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, answers) as engine, await hf.connect(path) as client:
            for name in ("first", "second", "third"):
                await engine.run(answers, id=name)
            rows(path, "UPDATE history SET events = ? WHERE number = 1", damage)
            with pytest.raises(hf.StoreError, match="the history of 'first' is damaged"):
                await engine.get("first").query("which")
            asked = [client.get(name).query("which") for name in ("first", "second", "third")]
            first, *others = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, hf.StoreError)
            assert others == ["second", "third"]

    together(scenario())

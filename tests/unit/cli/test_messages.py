"""``holdfast event`` and ``holdfast cancel``: what was sent is on disk, and what cannot be sent is a sentence."""

import asyncio
import json

import pytest
from tests.unit.cli.commands import Command

import holdfast as hf


def test_G6_an_event_is_raised_and_kept(filled: Command) -> None:
    done = filled("event", "open", "approval", "--input", '{"ok": true}', "--id", "one")
    assert (done.code, done.out) == (0, "event approval was raised to open\n")
    again = filled("event", "open", "approval", "--id", "one", "--json")
    assert json.loads(again.out) == {"id": "open", "event": "approval", "taken": True}
    assert filled("verify").code == 0


def test_G6_show_has_the_events_that_were_set_aside(filled: Command) -> None:
    @hf.workflow
    async def waits() -> int:
        return await hf.event("number", int)

    async def scenario() -> None:
        store = filled.folder / "holdfast.db"
        async with hf.Engine(store, workflows=[waits]) as engine:
            handle = await engine.start(waits, id="waiting")
            async with await hf.connect(store) as client:
                await client.get("waiting").raise_event("number", "one")
            while not (await handle.describe()).set_aside:  # noqa: ASYNC110 - no signal tells of it
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    shown = filled("show", "waiting").out
    assert "\nwaits for event number\n" in shown
    assert '\nset aside event number: "one", sent 2' in shown
    assert "Expected `int`, got `str`" in shown
    (aside,) = json.loads(filled("show", "waiting", "--json").out)["set_aside"]
    assert (aside["name"], aside["value"]) == ("number", "one")
    assert "event_set_aside" in filled("history", "waiting").out


def test_G4_show_has_the_newest_events_that_earlier_executions_set_aside(filled: Command) -> None:
    @hf.workflow
    async def waits(execution: int = 1) -> int:
        number = await hf.event("number", int)
        if execution == 1:
            hf.continue_as_new(2)
        return number

    async def scenario() -> None:
        store = filled.folder / "holdfast.db"
        async with hf.Engine(store, workflows=[waits]) as engine:
            handle = await engine.start(waits, id="waiting")
            async with await hf.connect(store) as client:
                for value in [*(f"wrong {number}" for number in range(11)), 1, "two"]:
                    await client.get("waiting").raise_event("number", value)
            while len((await handle.describe()).set_aside) < 12:  # noqa: ASYNC110 - no signal tells of it
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    lines = filled("show", "waiting").out.splitlines()
    assert "UTC, execution 2, " in lines[1]
    aside = [line for line in lines if line.startswith("set aside ")]
    assert len(aside) == 10
    assert aside[0].startswith('set aside event number: "wrong 2", sent to execution 1 2')
    assert aside[-1].startswith('set aside event number: "two", sent 2')
    assert "and 2 older events were set aside: --json has them" in lines
    assert len(json.loads(filled("show", "waiting", "--json").out)["set_aside"]) == 12


def test_A9_an_instance_is_cancelled_and_show_says_why(filled: Command) -> None:
    done = filled("cancel", "open", "--reason", "ordered twice")
    assert (done.code, done.out) == (0, "open is CANCELLED\n")
    shown = filled("show", "open").out.splitlines()
    assert shown[0] == "open  checkout  CANCELLED"
    assert shown[-1] == "cancelled ordered twice"
    assert json.loads(filled("show", "open", "--json").out)["reason"] == "ordered twice"
    assert filled("verify").code == 0


def test_A9_show_has_the_deadline_and_says_that_it_passed(filled: Command) -> None:
    async def start(deadline: float) -> None:
        client = await hf.connect(filled.folder / "holdfast.db")
        await client.start("checkout", "hat", id=f"within {deadline}", deadline=deadline)
        await client.close()

    for deadline in (3_600, 0.001):
        asyncio.run(start(deadline))
    assert ", held by no worker, deadline 20" in filled("show", "within 3600").out
    assert json.loads(filled("show", "within 3600", "--json").out)["deadline"] > "20"
    assert json.loads(filled("show", "open", "--json").out)["deadline"] is None
    filled("run", "shop.py:checkout", "--input", '["hat"]', "--id", "another")
    shown = filled("show", "within 0.001").out.splitlines()
    assert shown[0] == "within 0.001  checkout  FAILED"
    assert shown[-1] == "failed DeadlineExceeded: its deadline of 1 ms has passed before it began"
    assert filled("verify").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cancel", "good"], "'good' is COMPLETED, so it cannot be cancelled any more"),
        (["cancel", "nobody"], "no instance has the id 'nobody'"),
        (["event", "good", "go"], "'good' is COMPLETED: the event 'go' was not delivered"),
        (["event", "nobody", "go"], "no instance has the id 'nobody'"),
        (["event", "open", ""], "must not be empty"),
        (["event", "open", "go", "--input", "{"], "JSON"),
        (["event", "open", "go", "--input", '{"a": 1, "a": 2}'], "already"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(filled: Command, arguments: list[str], sentence: str) -> None:
    assert sentence in filled.refused(*arguments)

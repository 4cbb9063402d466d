"""``holdfast show --execution`` and ``holdfast history --execution``: an execution that another one follows (G4)."""

import asyncio
import json
from typing import Any

from tests.unit.cli.commands import Command

import holdfast as hf

ROUNDS = """
import holdfast as hf


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def rounds(number: int = 0) -> int:
    number = await step(number)
    return number if number > 2 else hf.continue_as_new(number)


@hf.workflow
async def outer() -> int:
    return await rounds(2)
"""


def test_G4_an_earlier_execution_has_its_own_steps_and_ledgers(holdfast: Command) -> None:
    (holdfast.folder / "rounds.py").write_text(ROUNDS, encoding="utf-8")
    assert holdfast("run", "rounds.py:rounds", "--id", "it", "--json").code == 0
    shown = holdfast("show", "it", "--execution", "1").out.splitlines()
    assert shown[0] == "it  rounds  COMPLETED"
    assert shown[1] == "execution 1 of 3, 2 turns, continued as new"
    assert any("888000001000001" in line for line in shown)
    assert not any(line.startswith("result") for line in shown)
    fields = json.loads(holdfast("show", "it", "--execution", "2", "--json").out)
    assert (fields["execution"], fields["executions"], fields["input"]) == (2, 3, {"number": 1})
    assert [attempt["ledger"] for step in fields["steps"] for attempt in step["attempts"]] == ["888000001000001"]
    assert "result" not in fields
    last = json.loads(holdfast("show", "it", "--json").out)
    assert (last["execution"], last["result"]) == (3, 3)
    assert "continued_as_new" in holdfast("history", "it", "--execution", "1").out
    assert "continued_as_new" not in holdfast("history", "it").out
    assert json.loads(holdfast("history", "it", "--execution", "2", "--json").out)["execution"] == 2
    for words in (["show"], ["history"], ["history", "--json"]):
        assert "the execution of 'it'" in holdfast.refused(*words, "it", "--execution", "4")


WAITING = """
import holdfast as hf


@hf.workflow
async def first(number: int = 0) -> int:
    if number == 0:
        hf.continue_as_new(1)
    await hf.event("go")
    return number
"""


def test_G4_an_earlier_execution_waits_for_nothing(holdfast: Command) -> None:
    async def begin() -> None:
        module: dict[str, Any] = {}
        exec(WAITING, module)  # noqa: S102 - the code of a user
        async with hf.Engine(holdfast.folder / "holdfast.db", workflows=[module["first"]]) as engine:
            handle = await engine.start(module["first"], id="it")
            async for _ in handle.watch():
                if (await handle.describe()).waiting_for:
                    return

    asyncio.run(begin())
    assert "waits for event go" in holdfast("show", "it").out
    assert "waits for" not in holdfast("show", "it", "--execution", "1").out


def test_K6_show_has_the_composite_key_of_code(holdfast: Command) -> None:
    (holdfast.folder / "rounds.py").write_text(ROUNDS, encoding="utf-8")
    assert holdfast("run", "rounds.py:outer", "--id", "it", "--json").code == 0
    assert "with children 6162" in holdfast("show", "it").out
    assert json.loads(holdfast("show", "it", "--json").out)["composite_key"] == "6162"

"""Values in ``holdfast show`` and ``holdfast history``: arguments, results, state, unread messages."""

import asyncio
import json

import pytest
from tests.unit.cli.commands import Command
from tests.workers.support import told

import holdfast as hf

LONG = 5_000


@hf.activity(queue="gpu")
async def train(rows: int) -> int:
    return rows


@hf.activity
async def note(text: str) -> str:
    return text


@hf.workflow
async def learn(name: str) -> int:
    @hf.on_update
    async def add(number: int) -> int:
        return number + 1

    hf.state["epoch"] = 7
    await note(name)
    training = asyncio.create_task(train(500))
    await hf.event("approval", str)
    return await training


@pytest.fixture
def learning(holdfast: Command) -> Command:
    async def scenario() -> None:
        store = holdfast.folder / "holdfast.db"
        async with hf.Engine(store, workflows=[learn], activities=[note], queues=["default"]) as engine:
            handle = await engine.start(learn, "x" * LONG, id="it")

            async def waits() -> bool:
                return "event approval" in (await handle.describe()).waiting_for

            await told(waits)
            await handle.raise_event("aproval", {"by": "Anna"})
            assert await handle.update("add", 3, id="u1") == 4
            with pytest.raises(hf.errors.UnknownUpdate):
                await handle.update("ad", 3, id="u2")

    asyncio.run(scenario())
    return holdfast


def test_the_values_of_an_instance_are_shown_in_lines_that_fit(
    learning: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    lines = learning("show", "it").out.splitlines()
    assert lines[2].startswith('input {"name":"xxx')
    assert lines[2].endswith("...")
    assert "state epoch = 7" in lines
    assert "        rows=500" in lines
    assert [line[:20] for line in lines if "xxx" in line[:20]] == [
        'input {"name":"xxxxx',
        '        {"text":"xxx',
        '        -> "xxxxxxxx',
    ]
    assert any(line.startswith('unread event aproval (no wait is open for it): {"by":"Anna"}') for line in lines)
    assert "update add(3) done -> 4" in lines
    assert "stuck no worker is alive: start one with holdfast worker" in lines
    assert all(len(line) <= 72 for line in lines if line.startswith(("input", "unread", "        ")))


def test_whole_values_are_shown_on_request(learning: Command) -> None:
    assert "x" * LONG not in learning("show", "it").out
    lines = learning("show", "it", "--whole").out.splitlines()
    text = '"' + "x" * LONG + '"'
    assert {f"input name={text}", f"        text={text}", f"        -> {text}"} <= {*lines}
    assert "x" * LONG not in learning("history", "it").out
    history = learning("history", "it", "--whole").out
    assert f'input={{"name":{text}}}' in history
    assert f"name=note  input=(text={text})" in history
    assert f"result={text}" in history
    fields = json.loads(learning("show", "it", "--json").out)
    assert (fields["input"]["reason"], fields["steps"][0]["result"]["reason"]) == ("cut", "cut")
    fields = json.loads(learning("show", "it", "--json", "--whole").out)
    assert fields["input"] == {"name": "x" * LONG}
    assert fields["steps"][0]["attempts"][0]["input"] == {"text": "x" * LONG}
    assert fields["steps"][0]["result"] == "x" * LONG


def test_programs_get_the_mailbox_the_updates_and_the_reasons(learning: Command) -> None:
    fields = json.loads(learning("show", "it", "--json").out)
    [message] = fields["mailbox"]
    assert (message["name"], message["value"], message["is_awaited"]) == ("aproval", {"by": "Anna"}, False)
    [update] = [each for each in fields["updates"] if each["id"] == "u1"]
    assert (update["name"], update["state"], update["result"]) == ("add", "done", 4)
    assert (fields["state_values"], fields["losses"], fields["damage"]) == ({"epoch": 7}, 0, [])
    assert fields["obstacles"] == ["no worker is alive: start one with holdfast worker"]


def test_the_history_has_the_arguments_and_what_is_unread(learning: Command) -> None:
    lines = learning("history", "it").out.splitlines()
    assert any("name=train  input=(rows=500)" in line for line in lines)
    assert lines[-1] == 'unread event aproval: {"by":"Anna"}'


def test_an_update_that_the_workflow_does_not_have_is_described(learning: Command) -> None:
    out = learning("show", "it").out
    assert "the workflow has no such update" in out
    assert "cannot be decoded" not in out

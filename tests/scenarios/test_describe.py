"""What `describe()` and `history()` show: inputs, results, state, the mailbox, updates, heartbeats and losses."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.scenarios.support import engine_of, rows, together
from tests.workers.support import told

import holdfast as hf
from holdfast.client.views.instances import LONGEST_VALUE, Description, Excerpt
from holdfast.core.lifecycle import InstanceState

LARGE = 200_000
LONG = LONGEST_VALUE + 1


@hf.activity
async def pay(cents: int, note: str = "") -> str:
    return f"receipt {note}" if cents else ""


@hf.activity
async def watched() -> int:
    hf.heartbeat({"row": 500})
    await asyncio.Event().wait()
    return 0


@hf.activity(retry=hf.Retry(attempts=1))
async def decline() -> int:
    raise ValueError("no")


@hf.workflow
async def order(customer: str) -> str:
    @hf.on_update
    async def add(number: int) -> int:
        return number + 1

    hf.set_status("paying")
    hf.state["cart"] = [1, 2] if customer else []
    await pay(4711)
    try:
        await decline()
    except ValueError:
        hf.state["declined"] = True
    answer = await hf.event("approval", str)
    await watched()
    return answer


@hf.workflow
async def writes(text: str) -> str:
    return await pay(1, text)


async def described(handle: hf.Handle[str], is_so: Callable[[Description], object]) -> Description:
    """The description once something is so."""
    found: list[Description] = []

    async def now() -> object:
        found[:] = [await handle.describe()]
        return is_so(found[0])

    await told(now)
    return found[0]


def test_K9_an_instance_is_described_with_its_values(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hf.Engine(
            tmp_path / "it.db", workflows=[order], activities=[pay, decline, watched], queues=["default"]
        ) as engine:
            handle = await engine.start(order, "Anna", id="it")
            await described(handle, lambda found: "event approval" in found.waiting_for)
            await handle.raise_event("aproval", "yes", id="e1")
            assert await handle.update("add", 3, id="u1") == 4
            found = await handle.describe()
            assert found.input == {"customer": "Anna"}
            assert found.state_values == {"cart": [1, 2], "declined": True}
            assert found.custom_status == "paying"
            paid, declined, waits = found.steps
            assert (paid.kind, paid.name, paid.result, paid.is_open) == ("activity", "pay", "receipt ", False)
            assert (declined.result, declined.failure) == (None, "ValueError: no")
            assert (waits.kind, waits.name, waits.result, waits.is_open) == ("event", "approval", None, True)
            assert found.attempts[0].input == {"cents": 4711}
            [message] = found.mailbox
            assert (message.kind, message.name, message.id, message.value) == ("event", "aproval", "e1", "yes")
            assert not message.is_awaited, "a misspelled name is seen"
            assert message.sent_at is not None
            [update] = found.updates
            assert (update.id, update.name, update.state, update.result) == ("u1", "add", "done", 4)
            assert found.damage == []
            await handle.raise_event("approval", "so be it")
            beating = await described(handle, lambda found: found.attempts[-1].details)
            assert beating.attempts[-1].details == {"row": 500}
            assert beating.attempts[-1].heartbeat_at is not None
            assert beating.attempts[-1].losses == 0
            assert beating.steps[2].result == "so be it"
            entries = [entry for entry in await handle.history() if entry.kind == "activity_scheduled"]
            assert [entry.fields["input"] for entry in entries] == [
                {"data": {"cents": 4711}},
                {"data": {}},
                {"data": {}},
            ]
            await handle.terminate()

    together(scenario())


@pytest.mark.parametrize(("length", "reason"), [(LONG, "cut"), (LARGE, "large")])
def test_long_values_are_cut_unless_they_are_asked_for_whole(tmp_path: Path, length: int, reason: str) -> None:
    async def scenario() -> None:
        async with hf.Engine(tmp_path / "it.db", workflows=[writes], activities=[pay]) as engine:
            text = "x" * length
            handle = await engine.start(writes, text, id="it")
            await handle.result()
            short = await handle.describe()
            for value in (short.input, short.attempts[0].input, short.steps[0].result):
                assert isinstance(value, Excerpt)
                assert value.reason == reason
                assert len(value.text) < 1_000
            whole = await handle.describe(whole=True)
            assert whole.input == {"text": text}
            assert whole.attempts[0].input == {"cents": 1, "note": text}
            assert whole.steps[0].result == f"receipt {text}"
            [scheduled] = [entry for entry in await handle.history() if entry.kind == "activity_scheduled"]
            assert scheduled.fields["input"] == {"data": {"cents": 1, "note": text}}

    together(scenario())


@pytest.mark.parametrize(
    ("statement", "bindings", "damage"),
    [
        ("UPDATE instances SET state = 'FOO'", (), ""),
        ("UPDATE history SET events = ? WHERE turn = 0", (b"\xff",), "turn 0 cannot be decoded"),
        ("UPDATE attempts SET input = ?, failure = ?, state = 'BAR'", (b"{", b"\xff"), ""),
        (
            "UPDATE instances SET input = ?, outcome = ?, closed_at_ms = -9223372036854775808",
            (b"{", b"["),
            "its outcome cannot be decoded",
        ),
        ("UPDATE kept SET value = ?", (b"\xff",), ""),
        ("UPDATE instances SET execution = 4611686018427387904", (), ""),
    ],
)
def test_a_damaged_instance_is_described(
    tmp_path: Path, statement: str, bindings: tuple[bytes, ...], damage: str
) -> None:
    path = tmp_path / "it.db"

    async def scenario() -> None:
        async with hf.Engine(path, workflows=[writes], activities=[pay]) as engine:
            await engine.run(writes, "a", id="it")
            rows(path, "INSERT INTO kept (number, key, value) VALUES (1, 'a', ?)", b"1")
            rows(path, statement, *bindings)
            found = await engine.get("it").describe()
            assert found.id == "it"
            assert any(text.startswith(damage) for text in found.damage) == bool(damage)
            assert [summary.id for summary in await engine.list()] == ["it"]

    together(scenario())


def test_the_former_names_of_the_state_work_for_one_release(tmp_path: Path) -> None:
    @hf.workflow
    async def ends() -> None:
        return None

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", ends) as engine:
            await engine.run(ends, id="it")
            described = await engine.get("it").describe()
            assert described.state is InstanceState.COMPLETED
            with pytest.warns(DeprecationWarning, match="is called `.state`"):
                assert described.status is described.state
            with pytest.warns(DeprecationWarning, match="filter, such as list"):
                assert [each.id for each in await engine.list(status="COMPLETED")] == ["it"]

    together(scenario())

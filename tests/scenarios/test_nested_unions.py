"""Values with unions inside that cannot be stored or read: the sender or the workflow gets a `PayloadError`."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import EventSetAside
from holdfast.core.lifecycle import InstanceState

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@dataclass(frozen=True)
class Amounts:
    cents: list[int]


@dataclass(frozen=True)
class Counts:
    cents: list[int]


def raise_error() -> int:
    raise LookupError("no default")


@dataclass
class Invoice:
    lines: Amounts | Counts
    number: int = field(default_factory=raise_error)


@dataclass
class Node:
    value: Amounts | Counts
    next: "Node | None" = None


def chain_of(length: int) -> Node:
    """A list of nodes; of the length 0 one that contains itself."""
    first = node = Node(Amounts([1]))
    for _ in range(length):
        node.next = node = Node(Amounts([1]))
    if not length:
        node.next = first
    return first


@hf.workflow
async def waits_for_a_set() -> int:
    return len(await hf.event("sent", frozenset[Amounts | Counts] | None) or ())


@hf.workflow
async def waits_for_an_invoice() -> int:
    return (await hf.event("sent", Invoice)).number


@hf.activity
async def take(node: Node) -> int:
    return len(node.value.cents)


@hf.workflow
async def returns_nodes(length: int, is_later: bool) -> Node:
    if is_later:
        await asyncio.sleep(0.001)
    return chain_of(length)


@hf.workflow
async def passes_nodes(length: int, is_later: bool) -> int:
    if is_later:
        await asyncio.sleep(0.001)
    return await take(chain_of(length))


@hf.workflow
async def waits_for_nodes() -> int:
    return len((await hf.event("sent", Node)).value.cents)


AMOUNTS = {"$type": "Amounts", "value": {"cents": [1]}}
UNREADABLE = pytest.mark.parametrize(
    ("workflow", "wrong", "right", "reason"),
    [
        (waits_for_a_set, [AMOUNTS], [], "unhashable type: 'list'"),
        (waits_for_an_invoice, {"lines": AMOUNTS}, {"lines": AMOUNTS, "number": 0}, "LookupError: no default"),
    ],
)


@CACHES
@UNREADABLE
def test_G6_an_event_that_user_code_cannot_read_is_set_aside(
    tmp_path: Path, cache_size: int, workflow: Any, wrong: Any, right: Any, reason: str
) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, workflow, cache_size=cache_size) as engine:
            handle = await engine.start(workflow, id="it")
            async with await hf.connect(store) as client:
                assert await client.get("it").raise_event("sent", wrong) is True
                await until(lambda: any(isinstance(event, EventSetAside) for event in history_of(store, 1)))
                described = await handle.describe()
                assert (described.state, described.waiting_for) == (InstanceState.RUNNING, ["event sent"])
                assert [each.reason for each in described.set_aside] == [f"event 'sent' cannot be read: {reason}"]
                await client.get("it").raise_event("sent", right)
            assert await handle.result() == 0
        assert audit(store) == []

    together(scenario())


@UNREADABLE
def test_G6_a_sender_in_the_same_process_is_refused_if_user_code_cannot_read_its_event(
    tmp_path: Path, workflow: Any, wrong: Any, right: Any, reason: str
) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, workflow) as engine:
            with pytest.raises(hf.PayloadError, match=f"event 'sent' cannot be read: {reason}"):
                await engine.start(workflow, id="it", event=("sent", wrong))
            assert rows(store, "SELECT id FROM instances") == []
            handle = await engine.start(workflow, id="it")
            with pytest.raises(hf.PayloadError, match=f"event 'sent' cannot be read: {reason}"):
                await handle.raise_event("sent", wrong)
            assert (await handle.describe()).state is InstanceState.RUNNING
            await handle.raise_event("sent", right)
            assert await handle.result() == 0
        assert audit(store) == []

    together(scenario())


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize(("length", "said"), [(0, "contains itself"), (150, "64 levels"), (3_000, "64 levels")])
def test_a_result_or_an_argument_that_is_too_deep_fails_the_workflow(
    tmp_path: Path, is_later: bool, length: int, said: str
) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, returns_nodes, passes_nodes, take) as engine:
            with pytest.raises(hf.WorkflowFailed, match=f"PayloadError: the result of returns_nodes.*{said}"):
                await engine.run(returns_nodes, length, is_later)
            with pytest.raises(hf.WorkflowFailed, match=f"ArgumentError: take.*argument `node`.*{said}"):
                await engine.run(passes_nodes, length, is_later)
        assert audit(store) == []

    together(scenario())


def test_an_event_that_is_too_deep_is_refused_and_the_deepest_one_is_received(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, waits_for_nodes) as engine:
            handle = await engine.start(waits_for_nodes)
            for length in (0, 62, 150, 3_000):
                with pytest.raises(hf.PayloadError, match="the value of event 'sent' cannot be stored as JSON"):
                    await handle.raise_event("sent", chain_of(length))
            await handle.raise_event("sent", chain_of(60))
            assert await handle.result() == 1
        assert audit(store) == []

    together(scenario())

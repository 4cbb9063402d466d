"""Children: workflows that workflows start, their results, failures and ids (G4, G5, G11, G12)."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.children import MOST_PARENTS, default_child_id
from holdfast.core.history import ChildCompleted, ChildScheduled, Started

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
LARGE = "x" * 100_000


class TooHeavy(Exception):
    pass


@dataclass(frozen=True)
class Box:
    label: str
    grams: int


@hf.activity
async def weigh(label: str) -> int:
    return len(label)


@hf.workflow
async def pack(label: str) -> Box:
    grams = await weigh(label)
    if grams > 10:
        raise TooHeavy(label)
    return Box(label, grams)


@hf.workflow
async def ship(labels: list[str]) -> list[Box]:
    return list(await asyncio.gather(*(pack(label) for label in labels)))


@hf.workflow
async def ship_in_order(labels: list[str]) -> list[str]:
    found: list[str] = []
    for label in labels:
        box = await pack(label)
        assert isinstance(box, Box)
        found.append(box.label)
    return found


@hf.workflow
async def tries() -> str:
    try:
        await pack("a piano, black")
    except hf.WorkflowFailed as error:
        return f"{type(error.cause).__name__}: {error.cause}, {error}"
    return "packed"


@hf.workflow
async def passes_on() -> None:
    await pack("a piano, black")


@hf.workflow
async def by_handle() -> list[object]:
    chosen = await hf.start(pack, "ring", id="my-ring")
    bound = await hf.start(pack.bind(label="hat"))
    named = await hf.start("pack", "cup")
    return [chosen.id, bound.id, named.id, (await chosen).grams, (await bound.result()).grams, await named]


@hf.workflow
async def two_of_one_id() -> str:
    await hf.start(pack, "ring", id="my-ring")
    try:
        await hf.start(pack, "hat", id="my-ring")
    except hf.InstanceConflict as error:
        return str(error)
    return "both"


@hf.workflow
async def tells_its_child() -> list[str]:
    handle = await hf.start(listens)
    handle.raise_event("word", "one")
    handle.raise_event("word", "two")
    return await handle


@hf.workflow
async def listens() -> list[str]:
    return [await hf.event("word", str), await hf.event("word", str)]


@hf.workflow
async def grows(size: int) -> str:
    return (await echo("x" * size)) + "!"


@hf.workflow
async def echo(text: str) -> str:
    return text


@hf.workflow
async def nests(level: int) -> int:
    return level if level == 0 else await nests(level - 1) + 1


@hf.workflow
async def nests_for_ever() -> None:
    await nests_for_ever()


@hf.workflow
async def goes_round(left: int) -> str:
    if left:
        await asyncio.sleep(0)
        hf.continue_as_new(left - 1)
    return f"{hf.info().execution} of {hf.info().parent}"


@hf.workflow
async def waits_for_a_continued_child() -> str:
    return await goes_round(3)


@hf.workflow
async def continues_with_children(left: int) -> list[str]:
    handle = await hf.start(echo, str(left))
    await handle
    if left:
        hf.continue_as_new(left - 1)
    return [handle.id]


ALL = (
    *(weigh, pack, ship, ship_in_order, tries, passes_on, by_handle, two_of_one_id, tells_its_child, listens, grows),
    *(echo, nests, nests_for_ever, goes_round, waits_for_a_continued_child, continues_with_children),
)


@CACHES
def test_G11_a_workflow_that_is_awaited_runs_as_a_child_with_typed_values(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            assert await engine.run(ship, ["a", "bb", "ccc"], id="order") == [
                Box("a", 1),
                Box("bb", 2),
                Box("ccc", 3),
            ]
            assert await engine.run(ship_in_order, ["a", "bb"], id="slow") == ["a", "bb"]
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []
        found = rows(
            tmp_path / "shop.db",
            "SELECT id, parent, parent_execution, parent_step, parent_close FROM instances WHERE parent = 1 ORDER BY 1",
        )
        assert found == [(f"order/1/{step}", 1, 1, step, "terminate") for step in range(3)]
        started = history_of(tmp_path / "shop.db", 2)[0]
        assert isinstance(started, Started)
        assert (started.parent, started.depth) == ("order", 1)

    together(scenario())


def test_the_message_of_a_failure_names_the_first_and_the_last_instance_however_deep(tmp_path: Path) -> None:
    @hf.workflow
    async def down(levels: int) -> int:
        if levels == 0:
            raise TooHeavy("a piano, black")
        return await down(levels - 1)

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", down) as engine:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await engine.run(down, 30, id="a")
            origin = f"a{'/1/0' * 30}"
            assert str(caught.value) == f"a failed: {origin} failed: TooHeavy: a piano, black"
            inner = caught.value.cause
            assert str(inner) == f"a/1/0 failed: {origin} failed: TooHeavy: a piano, black"

    together(scenario())


@CACHES
def test_a_failed_child_raises_its_error_as_the_cause_and_so_does_the_parent(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            said = await engine.run(tries, id="tries")
            assert said == "TooHeavy: a piano, black, tries/1/0 failed: TooHeavy: a piano, black"
            with pytest.raises(hf.WorkflowFailed, match="passes failed: passes/1/0 failed: ") as caught:
                await engine.run(passes_on, id="passes")
            inner = caught.value.cause
            assert isinstance(inner, hf.WorkflowFailed)
            assert isinstance(inner.cause, TooHeavy)
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_a_handle_knows_its_id_by_reference_bound_and_by_name(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            found = await engine.run(by_handle, id="it")
            assert found == ["my-ring", "it/1/1", "it/1/2", 4, 3, {"label": "cup", "grams": 3}]
            assert await engine.run(tells_its_child, id="tells") == ["one", "two"]
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_G3_an_id_that_is_taken_is_a_conflict_at_the_start_and_the_turn_is_not_lost(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            said = await engine.run(two_of_one_id, id="it")
            assert said == "the id 'my-ring' is taken, so no child of 'pack' was started with it"
            assert (await engine.get("it").describe()).collation_key[1] == "7"
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_large_inputs_and_results_of_children_go_through_whole(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            assert await engine.run(grows, len(LARGE), id="it") == LARGE + "!"
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_G4_a_continued_child_still_answers_its_parent(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            assert await engine.run(waits_for_a_continued_child, id="it") == "4 of it"
        answers = [event for event in history_of(tmp_path / "shop.db", 1) if isinstance(event, ChildCompleted)]
        assert len(answers) == 1
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_G4_the_ids_of_children_of_different_executions_never_collide(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            assert await engine.run(continues_with_children, 2, id="it") == ["it/3/0"]
            again = await engine.start(continues_with_children, 2, id="it", policy="reuse")
            assert await again.result(timeout=10) == ["it/3/0"], "children of the earlier instance made room"
        ids = rows(tmp_path / "shop.db", "SELECT id, count(*) FROM instances WHERE parent IS NOT NULL GROUP BY id")
        assert ids == [("it/1/0", 2), ("it/2/0", 2), ("it/3/0", 2)]
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_a_workflow_that_starts_itself_for_ever_ends_with_a_typed_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            assert await engine.run(nests, 5, id="five") == 5
            with pytest.raises(hf.WorkflowFailed, match="NestedTooDeep"):
                await engine.run(nests_for_ever, id="endless")
        count = rows(tmp_path / "shop.db", "SELECT count(*) FROM instances WHERE workflow = 'nests_for_ever'")
        assert count == [(MOST_PARENTS + 1,)]
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_a_default_id_says_whose_child_it_is_and_keeps_the_rules_for_ids() -> None:
    assert default_child_id("order-42", 1, 0) == "order-42/1/0"
    for parent in ("x" * 255, "\N{GREEK SMALL LETTER ALPHA}" * 127, "x" * 250 + " y"):
        made = default_child_id(parent, 12, 345)
        assert hf.Engine(":memory:").get(made).id == made
        assert made.endswith("/12/345")
        assert made != default_child_id(parent[:-1] + "z", 12, 345), "the hash tells long ones apart"


def test_outside_of_a_workflow_the_error_names_what_does_it() -> None:
    with pytest.raises(hf.errors.NotInWorkflow, match=r"client\.start"):
        together(hf.start(echo, "x"))
    with pytest.raises(hf.errors.UsageError, match=r"engine\.run"):
        together(echo("x"))


def test_G1_children_run_where_their_code_is_and_wake_their_parent_elsewhere(tmp_path: Path) -> None:
    """Two engines on one file: one knows the parents, the other the children."""

    @hf.workflow
    async def abroad(word: str) -> str:
        found: str = await (await hf.start("echo", word))
        return found

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, abroad) as parents, engine_of(path, echo) as children:
            async with asyncio.TaskGroup() as group:
                results = [group.create_task(parents.run(abroad, f"w{n}", id=f"p{n}")) for n in range(5)]
            assert [result.result() for result in results] == [f"w{n}" for n in range(5)]
            assert await children.get("p0/1/0").result() == "w0"
        check_tables(path)
        assert audit(path) == []

    together(scenario())


@hf.workflow
async def starts_hat() -> str:
    return await echo("hat")


def test_K9_whoever_looks_sees_the_parent_and_its_children(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(ship, ["a", "bb", "ccc"], id="order")
            await handle.result(timeout=10)
            described = await handle.describe()
            assert (described.parent, described.children) == (None, {"COMPLETED": 3})
            assert described.collation_key == "666"
            children = await handle.children(limit=2)
            assert [(child.id, child.parent) for child in children] == [
                ("order/1/2", "order"),
                ("order/1/1", "order"),
            ]
            assert [child.id for child in await handle.children(before=children[-1].number)] == ["order/1/0"]
            assert (await engine.get("order/1/0").describe()).parent == "order"
            assert await engine.get("order/1/0").children() == []
            with pytest.raises(hf.errors.InvalidOption, match="limit must be"):
                await handle.children(limit=0)

    together(scenario())


def test_G12_code_that_starts_another_child_than_recorded_is_parked_with_both(tmp_path: Path) -> None:
    @hf.workflow(name="starts_hat")
    async def changed() -> str:
        return await (await hf.start(pack, "hat")).result()  # type: ignore[return-value]

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, starts_hat) as engine:  # nobody runs the child
            handle = await engine.start(starts_hat, id="it")
            described = await handle.describe()
            assert described.waiting_for == ["child echo it/1/0"]
            assert described.collation_key == "8"
        async with engine_of(path, changed, pack, echo) as engine:
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE state = 'BLOCKED'"))
            blocked = (await engine.get("it").describe()).blocked or ""
        assert "recorded the start of a child of workflow 'echo' (number 0, id 'it/1/0')" in blocked
        assert "but the code produced the start of a child of workflow 'pack' (number 0, id 'it/1/0')" in blocked
        async with engine_of(path, starts_hat, echo) as engine:
            assert await engine.get("it").result(timeout=10) == "hat"
        scheduled = [event for event in history_of(path, 1) if isinstance(event, ChildScheduled)]
        assert [event.id for event in scheduled] == ["it/1/0"]
        assert audit(path) == []

    together(scenario())

"""What the end of a parent does to its children, whichever way it ends (A9, C1, G4)."""

from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.families import ALL, CACHES, has_many, is_at, says, settled, starts, states, tree
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until
from tests.support.inside import attempts_of, live_instances, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ChildCompleted, ChildStopped

POLICIES = [
    (None, False, "TERMINATED"),
    ("terminate", False, "TERMINATED"),
    ("cancel", False, "CANCELLED"),
    ("abandon", False, "RUNNING"),
    (None, True, "RUNNING"),
    ("cancel", True, "CANCELLED"),
]


@CACHES
@pytest.mark.parametrize("end", ["return", "fail", "terminate", "continue"])
@pytest.mark.parametrize(("parent_close", "detached", "state"), POLICIES)
def test_A9_the_end_of_a_parent_does_to_its_child_what_the_policy_says(
    tmp_path: Path, cache_size: int, end: str, parent_close: str | None, detached: bool, state: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            parent = await engine.start(starts, "sleeps", parent_close, detached, end, id="it")
            await is_at(engine.get("it/1/0"), "RUNNING")
            if end == "terminate":
                await parent.terminate("enough")
            else:
                await parent.raise_event("go")
            ends = {"return": "COMPLETED", "fail": "FAILED", "terminate": "TERMINATED", "continue": "COMPLETED"}
            wanted = {"it": ends[end], "it/1/0": state}
            if end == "continue":
                wanted["it/2/0"] = "COMPLETED"
            await settled(path, wanted)
            answers = [event for event in history_of(path, 1) if isinstance(event, ChildStopped)]
            assert answers == [], "the execution that started it is over"
            if state == "TERMINATED":
                with pytest.raises(hf.WorkflowTerminated, match="its parent ended"):
                    await engine.get("it/1/0").result(timeout=10)

    together(scenario())


def test_A9_a_parked_parent_that_is_cancelled_asks_its_children_in_its_place(tmp_path: Path) -> None:
    @hf.workflow(name="starts")
    async def changed(workflow: str, parent_close: Any, detached: bool, then: str) -> str:
        return await says(f"something else than {workflow}, {parent_close}, {detached}, {then}")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            await engine.start(starts, "cleans_up", None, False, "return", id="it")
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE name = 'hangs'"))
        others = [each for each in ALL if each is not starts]
        async with engine_of(path, changed, *others) as engine:
            await engine.get("it").raise_event("go")
            await until(lambda: states(path)["it"] == "BLOCKED")
            await engine.get("it").cancel("enough")
            await settled(path, {"it": "CANCELLED", "it/1/0": "CANCELLED"})
            assert ("undo", "COMPLETED") in rows(path, "SELECT name, state FROM attempts")

    together(scenario())


def test_a_detached_child_is_not_cancelled_by_who_stops_waiting_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            assert await engine.run(starts, "sleeps", None, True, "detached wait", id="it") == "it/1/0"
            await settled(path, {"it": "COMPLETED", "it/1/0": "RUNNING"})
            await engine.get("it/1/0").terminate()

    together(scenario())


def test_C1_a_large_family_is_closed_a_batch_at_a_time_by_whoever_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that ends the parent goes through a few children; the janitor's rounds through the rest."""
    monkeypatch.setattr("holdfast.storage.relational.apply.children.close_children.__defaults__", (3,))

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            parent = await engine.start(has_many, 10, "sleeps", id="it")
            await until(lambda: list(states(path).values()).count("RUNNING") == 11)
            await parent.terminate()
            now = list(states(path).values())
            assert (now.count("TERMINATED"), now.count("RUNNING")) == (4, 7)
            assert rows(path, "SELECT number, how FROM closings") == [(1, "terminated")]
            assert audit(path) == []
            await settled(path, {"it": "TERMINATED"} | {f"it/1/{step}": "TERMINATED" for step in range(10)})
            await until(lambda: rows(path, "SELECT count(*) FROM closings") == [(0,)])
            worker = worker_of(engine)
            await until(lambda: len(live_instances(worker)) == 0)  # their code is not live any more

    together(scenario())


@CACHES
def test_A9_a_terminated_parent_takes_the_whole_tree_with_it(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            parent = await engine.start(tree, 3, id="it")
            await until(lambda: list(states(path).values()).count("RUNNING") == 15)
            await parent.terminate()
            assert set(states(path).values()) == {"TERMINATED"}, "in one commit"
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_G3_an_instance_that_makes_room_takes_its_children_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            await engine.start(starts, "sleeps", None, False, "return", id="it")
            await is_at(engine.get("it/1/0"), "RUNNING")
            again = await engine.start(
                starts, "says_nothing", None, False, "await", id="it", policy="terminate_existing"
            )
            assert await again.result(timeout=10) == "awaited"
            found = rows(path, "SELECT id, state FROM instances ORDER BY number")
            assert found == [
                *[("it", "TERMINATED"), ("it/1/0", "TERMINATED"), ("it", "COMPLETED"), ("it/1/0", "COMPLETED")]
            ]
        assert audit(path) == []

    together(scenario())


def test_G4_what_a_child_of_an_old_execution_answers_never_reaches_the_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            parent = await engine.start(starts, "answers", "abandon", False, "continue", id="it")
            await is_at(engine.get("it/1/0"), "RUNNING")
            await parent.raise_event("go")
            assert await parent.result(timeout=10) == "awaited"
            await engine.get("it/1/0").raise_event("answer", "late")
            assert await engine.get("it/1/0").result(timeout=10) == "late"
            answers = [event for event in history_of(path, 1) if isinstance(event, ChildCompleted)]
            assert len(answers) == 1, "that of the second execution's own child"
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_a_child_that_was_terminated_stops_its_activities_in_this_process_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            parent = await engine.start(has_many, 1, "cleans_up", id="it")
            worker = worker_of(engine)
            await until(lambda: attempts_of(worker).running)
            (number,) = rows(path, "SELECT number FROM instances WHERE id = 'it/1/0'")[0]
            assert number in live_instances(worker)
            await parent.raise_event("go")
            await parent.result(timeout=10)
            assert number not in live_instances(worker)
            await until(lambda: not attempts_of(worker).running)
            await settled(path, {"it": "COMPLETED", "it/1/0": "TERMINATED"})

    together(scenario())

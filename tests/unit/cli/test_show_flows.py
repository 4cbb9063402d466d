"""``holdfast show`` of a flow: its key over the graph, for people and for programs."""

import asyncio
import importlib
import json
import re
import sys
from typing import Any

import pytest
from tests.unit.cli.commands import Command, sql
from tests.unit.cli.flow_files import write_files

import holdfast as hf


@pytest.fixture
def foxes(holdfast: Command) -> Command:
    write_files(holdfast.folder)
    return holdfast


def start_waiting(foxes: Command) -> None:
    """An instance whose fox waits for dinner, and nobody has it."""

    async def start() -> None:
        sys.path.insert(0, str(foxes.folder))
        tasks: Any = importlib.import_module("tasks")
        async with hf.Engine(foxes.folder / "holdfast.db", modules=[tasks]) as engine:
            handle = await engine.start(tasks.flow, {"speed": 1}, id="hungry")
            async for _ in handle.watch():
                if (await handle.describe()).collation_key.startswith("5"):
                    break

    asyncio.run(start())


NOTE = " " * 8
"""What a line below a row begins with: the arguments of a step, its heartbeat."""
MORE = " " * 20
"""What a further row of a node begins with."""


def columns(out: str) -> list[list[str]]:
    lines = out.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("key   "))
    rows = [line for line in lines[first + 1 :] if not line.startswith(NOTE) or line.startswith(MORE)]
    return [re.split(r"  +", line.strip()) for line in rows]


def test_K7_the_key_stands_over_the_graph(foxes: Command) -> None:
    assert foxes("run", "tasks.py:flow", "--input", '{"speed": 5}', "--id", "awake").code == 0
    out = foxes("show", "awake").out
    assert "key 366663300000000  4 completed, 3 skipped" in out.splitlines()
    rows = columns(out)
    assert [row[:3] for row in rows[:-1]] == [
        ["6", "completed", "quick"],
        ["6", "completed", "brown"],
        ["6", "completed", "fox"],
        ["6", "completed", "jumped"],
        ["3", "skipped", "slept"],
        ["3", "skipped", "ate"],
        ["3", "skipped", "wept"],
    ], "in the order of the graph, and as it was written"
    assert rows[2][3:6] == ["tasks.fox", "1", "COMPLETED"]
    assert rows[2][6] == "888000001000001"
    assert rows[3][-1] == '"jumped"'
    assert out.splitlines()[-1] == "result 5"
    assert "with children" not in out


def test_A3_what_waits_for_others_is_requested_and_what_is_due_has_its_time(foxes: Command) -> None:
    start_waiting(foxes)
    out = foxes("show", "hungry").out
    assert "key 566366300000000  4 completed, 1 paused, 2 skipped" in out.splitlines()
    assert re.search(r"5  paused +ate +event dinner, at most 1h +event waiting", out)
    assert re.search(r"timer waiting +due \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", out)
    assert re.search(r"6  completed  slept .* a large value", out)
    assert "waits for event dinner (node ate)" in out
    sql(
        foxes.folder / "holdfast.db",
        "DELETE FROM history WHERE number = (SELECT number FROM instances WHERE id = 'hungry') AND turn > 1",
    )
    sql(foxes.folder / "holdfast.db", "UPDATE instances SET collation_key = '968969900000000'")
    rows = columns(foxes("show", "hungry").out)
    assert ["9", "pending", "jumped", "tasks.jump", "1", "REQUESTED", "999000000000000", "after fox"] in rows
    assert ["9", "pending", "ate", "event dinner, at most 1h", "after slept"] in rows


def test_a_failure_that_was_caught_says_so(foxes: Command) -> None:
    foxes("run", "tasks.py:flow", "--input", '{"speed": -2}', "--id", "tired", "--json")
    out = foxes("show", "tired").out
    assert re.search(r"7  errored, caught +fox +tasks.fox +1  FAILED +889000000000000 .*TooTired: at -2", out)
    assert re.search(r"\n +2  FAILED +888000001000001 .*TooTired: at -2", out)
    assert re.search(r"6  completed +wept", out)


def test_K6_children_are_there_with_their_ids_and_their_keys(foxes: Command) -> None:
    foxes("run", "tasks.py:family", "--id", "all", "--json")
    out = foxes("show", "all").out
    assert "key 366660000000000  4 completed, 1 skipped" in out.splitlines()
    assert "with children 366162" + "162" + "61366663326" in out.splitlines()
    assert re.search(r"6  completed  cubs +each: flow pack +\[0\] +COMPLETED .* all/1/0", out)
    assert re.search(r"6  completed  elder +flow fox .* all/1/2", out)


def test_json_has_every_node(foxes: Command) -> None:
    foxes("run", "tasks.py:family", "--id", "all", "--json")
    fields = json.loads(foxes("show", "all", "--json").out)
    assert fields["collation_key"] == "366660000000000"
    assert fields["composite_key"] == "36616216261366663326"
    assert len(fields["flow"]) == 32
    nodes = {node["id"]: node for node in fields["nodes"]}
    assert [node["digit"] for node in fields["nodes"]] == [6, 6, 6, 6, 3]
    assert nodes["count"]["attempts"][0]["ledger"] == "888000001000001"
    assert nodes["cubs"]["output"] == ["brown", "brown"]
    assert nodes["cubs"]["items"] == 2
    assert [child["dimension"] for child in nodes["cubs"]["children"]] == ["0/0:0/0", "0/0:1/0"]
    assert nodes["elder"]["after"] == ["start"]
    start_waiting(foxes)
    waiting = {node["id"]: node for node in json.loads(foxes("show", "hungry", "--json").out)["nodes"]}
    assert len(waiting["slept"]["output"]) == 200_000
    assert [wait["kind"] for wait in waiting["ate"]["waits"]] == ["event", "timer"]


def test_run_shows_the_nodes_as_they_end(foxes: Command) -> None:
    out = foxes("run", "tasks.py:flow", "--input", '{"speed": -2}', "--id", "tired").out
    assert re.search(r"fox .* attempt 1: TooTired: at -2; tried again", out)
    assert re.search(r"wept \(jump\) +\d+ ms", out)


def test_a_flow_whose_definition_is_gone_is_shown_without_its_nodes(foxes: Command) -> None:
    foxes("run", "tasks.py:flow", "--input", '{"speed": 5}', "--id", "awake", "--json")
    sql(foxes.folder / "holdfast.db", "DELETE FROM flows")
    done = foxes("show", "awake")
    assert (done.code, done.err) == (0, "")
    assert "is not in the store; run holdfast verify" in done.out
    assert "key 366663300000000" in done.out
    assert done.out.splitlines()[-1] == "result 5"

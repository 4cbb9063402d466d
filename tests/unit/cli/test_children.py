"""``holdfast show`` and ``holdfast list`` of parents and children."""

import json
import re

import pytest
from tests.unit.cli.commands import Command

FAMILY = '''
"""A family, for the tests of the command."""

import holdfast as hf


@hf.workflow
async def pack(item: str) -> str:
    return f"packed {item}"


@hf.workflow
async def ship(items: list[str]) -> list[str]:
    handle = await hf.start("not here", detached=True)
    return [handle.id, *[await pack(item) for item in items]]
'''


@pytest.fixture
def family(holdfast: Command) -> Command:
    (holdfast.folder / "family.py").write_text(FAMILY, encoding="utf-8")
    done = holdfast("run", "family.py:ship", "--input", '[["hat", "cup"]]', "--id", "order", "--json")
    assert done.code == 0, done.err
    return holdfast


def test_K9_show_lists_the_children_with_their_state_and_whose_child_one_is(family: Command) -> None:
    lines = family("show", "order").out.splitlines()
    assert "3 children: 2 COMPLETED, 1 REQUESTED" in lines
    assert "key 866  1 started, 2 completed" in lines
    assert any(re.search(r"child not here +REQUESTED .* order/1/0$", line) for line in lines)
    assert any(re.search(r"child pack +COMPLETED .* order/1/1$", line) for line in lines)
    child = family("show", "order/1/2").out.splitlines()
    assert "a child of order, number 2 of its execution 1" in child
    fields = json.loads(family("show", "order", "--json").out)
    assert fields["children"] == {"REQUESTED": 1, "COMPLETED": 2}
    assert [(step["kind"], step["name"], step["id"], step["state"]) for step in fields["steps"]] == [
        ("child", "not here", "order/1/0", "REQUESTED"),
        ("child", "pack", "order/1/1", "COMPLETED"),
        ("child", "pack", "order/1/2", "COMPLETED"),
    ]
    assert json.loads(family("show", "order/1/2", "--json").out)["parent"] == "order"


def test_list_shows_parents_and_filters_by_one(family: Command) -> None:
    lines = family("list").out.splitlines()
    assert lines[0].split()[-1] == "parent"
    assert [line.split()[0] for line in lines[1:]] == ["order/1/2", "order/1/1", "order/1/0", "order"]
    only = json.loads(family("list", "--parent", "order", "--state", "completed", "--json").out)
    assert [(each["id"], each["parent"]) for each in only] == [("order/1/2", "order"), ("order/1/1", "order")]
    assert family("list", "--parent", "order/1/2").out == "No instances.\n"
    assert "no instance has the id 'nobody'" in family.refused("list", "--parent", "nobody")


def test_history_and_run_tell_of_children(family: Command) -> None:
    out = family("history", "order").out
    assert re.search(r"child_scheduled +child=1 +name=pack +id=order/1/1", out)
    assert re.search(r'child_completed +child=1 +result="packed hat"', out)
    told = family("run", "family.py:ship", "--input", '[["hat"]]', "--id", "again")
    assert "child pack" in told.err + told.out

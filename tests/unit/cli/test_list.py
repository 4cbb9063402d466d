"""``holdfast list`` with a filter: the same instances as by the API, a page at a time (F4, F7, F9)."""

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.cli.commands import Command

import holdfast as hf

if TYPE_CHECKING:
    from holdfast.core.attributes import AttributeValue


@pytest.fixture
def orders(holdfast: Command) -> Command:
    """Five instances that no worker has begun, with attributes."""

    async def start() -> None:
        async with hf.connect(holdfast.folder / "holdfast.db") as client:
            for number in range(5):
                customer = "acme" if number % 2 else "bob [x]"
                attributes: dict[str, AttributeValue] = {"customer": customer, "tags": ["a", f"t{number}"]}
                await client.start("order", number, id=f"o{number}", attributes=attributes)

    asyncio.run(start())
    return holdfast


def ids(command: Command, *words: str) -> list[str]:
    return [each["id"] for each in json.loads(command("list", *words, "--json").out)]


def test_F4_a_filter_and_options_are_joined(orders: Command) -> None:
    assert ids(orders, "a.customer = 'acme'") == ["o3", "o1"]
    assert ids(orders, 'a.customer starts with "bob [" and not a.tags = "t0"') == ["o4", "o2"]
    assert ids(orders, "a.tags = 't1' or id = 'o2'", "--state", "requested", "--workflow", "order") == ["o2", "o1"]
    assert ids(orders, "--state", "failed") == []
    assert ids(orders, "--since", "1h", "--order", "created asc", "-n", "1") == ["o0"]
    assert ids(orders, "--since", "yesterday") == ids(orders, "--since", "2020-01-01T00:00:00Z") == ids(orders)
    assert ids(orders, "--since", "2999-01-01T00:00:00Z") == []
    [listed] = json.loads(orders("list", "id = 'o1'", "--json").out)
    assert listed["attributes"] == {"customer": "acme", "tags": ["a", "t1"]}


def test_F7_the_next_page_is_the_one_behind_the_cursor(orders: Command) -> None:
    *lines, note = orders("list", "execution = 1", "-n", "2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "o4", "o3"]
    cursor = note.removeprefix("there are more: --cursor ")
    assert ids(orders, "execution = 1", "-n", "2", "--cursor", cursor) == ["o2", "o1"]
    assert "another filter" in orders.refused("list", "--cursor", cursor)
    assert "there are more" not in orders("list", "execution = 1", "-n", "5").out
    ran = orders("list", "-n", "1", "--json")
    assert len(json.loads(ran.out)) == 1
    assert "there are more: --cursor" in " ".join(ran.err.split())


def test_F9_a_count_is_one_line(orders: Command) -> None:
    assert orders("list", "a.customer = 'acme'", "--count").out == "2\n"
    assert json.loads(orders("list", "--count", "--json").out) == {"at_least": 5, "exact": True}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["statee = FAILED"], "column 1: there is no field 'statee'; did you mean state?"),
        (["state = failed", "--since", "soon"], "--since takes a duration such as 90m or 2d"),
        (["--since", "1h) or (id = 'a'"], "--since takes"),
        (["--order", "id"], "order is created, closed or duration"),
        (["--order", "closed"], "needs a time range"),
        (["--cursor", "x"], "the cursor was changed"),
        (["--limit", "0"], "--limit must be from 1"),
        (["--state", "nothing"], "is not a valid state"),
    ],
)
def test_F5_a_wrong_filter_is_one_sentence(orders: Command, words: list[str], message: str) -> None:
    assert message in " ".join(orders.refused("list", *words).split())


def test_F2_show_has_the_attributes(orders: Command) -> None:
    lines = [" ".join(line.split()) for line in orders("show", "o1").out.splitlines()]
    assert 'attribute customer = "acme"' in lines
    assert 'attribute tags = ["a", "t1"]' in lines or 'attribute tags = ["a","t1"]' in lines
    assert json.loads(orders("show", "o1", "--json").out)["attributes"]["customer"] == "acme"

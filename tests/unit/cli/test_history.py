"""``holdfast history``: events for people, JSON for programs, and a file that tests replay."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.commands import Command


@pytest.fixture
def filled(holdfast: Command) -> Command:
    """A store with one instance that completed."""
    holdfast("run", "shop.py:checkout", "--input", '["hat", 5]', "--id", "good", "--json")
    return holdfast


def test_the_events_are_listed_in_order(filled: Command) -> None:
    done = filled("history", "good")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].split() == ["step", "time", "(UTC)", "event"]
    assert "started" in lines[1]
    assert "workflow=checkout" in lines[1]
    assert lines[2].split()[1:] == ["activity_scheduled", "activity=0", "name=charge", "input=(cents=5)"]
    assert "workflow_completed" in lines[-1]


def test_json_and_export_are_the_same_text_and_can_be_replayed(filled: Command) -> None:
    printed = filled("history", "good", "--json").out
    assert filled("history", "good", "--export", "good.json").out == ""
    assert Path("good.json").read_text(encoding="utf-8") == printed
    fields = json.loads(printed)
    assert (fields["holdfast_history"], fields["id"], fields["workflow"], fields["execution"]) == (
        1,
        "good",
        "checkout",
        1,
    )
    assert fields["turns"][0][0]["event"] == "started"


def test_what_cannot_be_shown_or_written_is_one_sentence(filled: Command) -> None:
    assert "no instance has the id 'nobody'" in filled.refused("history", "nobody")
    assert "cannot be written" in filled.refused("history", "good", "--export", "no/such/folder/file.json")


def test_the_newest_entries_have_the_numbers_that_they_have_among_all(filled: Command) -> None:
    lines = filled("history", "good").out.splitlines()
    newest = filled("history", "good", "--limit", "2").out.splitlines()
    assert [line.split() for line in newest[1:3]] == [line.split() for line in lines[-2:]]
    assert newest[3:] == [f"the newest 2 of {len(lines) - 1} events; --limit N shows more"]
    assert filled("history", "good", "-n", "100").out.splitlines() == lines
    assert "--limit must be an integer from 1" in filled.refused("history", "good", "--limit", "0")
    assert "leave out --limit" in filled.refused("history", "good", "--limit", "1", "--json")

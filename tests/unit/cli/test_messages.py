"""``holdfast event`` and ``holdfast cancel``: what was sent is on disk, and what cannot be sent is a sentence."""

import json

import pytest
from tests.unit.cli.commands import Command


def test_G6_an_event_is_raised_and_kept(filled: Command) -> None:
    done = filled("event", "open", "approval", "--input", '{"ok": true}', "--id", "one")
    assert (done.code, done.out) == (0, "event approval was raised to open\n")
    again = filled("event", "open", "approval", "--id", "one", "--json")
    assert json.loads(again.out) == {"id": "open", "event": "approval", "taken": True}
    assert filled("verify").code == 0


def test_A9_an_instance_is_cancelled_and_show_says_why(filled: Command) -> None:
    done = filled("cancel", "open", "--reason", "ordered twice")
    assert (done.code, done.out) == (0, "open is CANCELLED\n")
    shown = filled("show", "open").out.splitlines()
    assert shown[0] == "open  checkout  CANCELLED"
    assert shown[-1] == "cancelled ordered twice"
    assert json.loads(filled("show", "open", "--json").out)["reason"] == "ordered twice"
    assert filled("verify").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cancel", "good"], "'good' is COMPLETED, so it cannot be cancelled any more"),
        (["cancel", "nobody"], "no instance has the id 'nobody'"),
        (["event", "good", "go"], "'good' is COMPLETED: the event 'go' was not delivered"),
        (["event", "nobody", "go"], "no instance has the id 'nobody'"),
        (["event", "open", ""], "must not be empty"),
        (["event", "open", "go", "--input", "{"], "JSON"),
        (["event", "open", "go", "--input", '{"a": 1, "a": 2}'], "already"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(filled: Command, arguments: list[str], sentence: str) -> None:
    assert sentence in filled.refused(*arguments)

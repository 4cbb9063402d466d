"""``holdfast terminate``: the instance is ended, its reason is shown, and what cannot be ended is a sentence."""

import json

import pytest
from tests.unit.cli.commands import Command


def test_A9_an_instance_is_terminated_and_show_says_why(filled: Command) -> None:
    done = filled("terminate", "open", "--reason", "a [red]mistake[/red]\x1b[2J")
    assert (done.code, done.out) == (0, "open was terminated\n")
    shown = filled("show", "open").out.splitlines()
    assert shown[0] == "open  checkout  TERMINATED"
    assert shown[-1] == r"terminated a [red]mistake[/red]\x1b[2J"
    fields = json.loads(filled("show", "open", "--json").out)
    assert (fields["state"], fields["reason"]) == ("TERMINATED", "a [red]mistake[/red]\x1b[2J")
    assert "result" not in fields
    assert filled("verify").code == 0
    run = filled("run", "shop.py:checkout", "--id", "open")
    assert run.code == 1
    assert "open was terminated: a [red]mistake[/red]" in run.err


def test_json_says_what_was_done(filled: Command) -> None:
    done = filled("terminate", "open", "--json")
    assert json.loads(done.out) == {"id": "open", "state": "TERMINATED", "status": "TERMINATED", "reason": None}
    assert filled("show", "open").out.splitlines()[-1] == "terminated without a reason"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["good"], "'good' is COMPLETED, so it cannot be terminated any more"),
        (["nobody"], "no instance has the id 'nobody'"),
        ([""], "must not be empty"),
        (["open", "--reason", "x" * 9_000], "at most 8,192 characters, not 9,000 characters"),
    ],
)
def test_what_cannot_be_terminated_is_one_sentence(filled: Command, arguments: list[str], sentence: str) -> None:
    assert sentence in filled.refused("terminate", *arguments)

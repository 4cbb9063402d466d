"""``holdfast resume``: a blocked instance is claimable again, and any other instance is refused with a sentence."""

import json
from typing import Any

import apsw
import pytest
from tests.unit.cli.commands import Command


def block(command: Command, instance_id: str) -> None:
    """Leaves an instance as a worker leaves it that cannot take its turn."""
    connection: Any = apsw.Connection(str(command.folder / "holdfast.db"))
    connection.execute(
        "UPDATE instances SET state = 'BLOCKED', blocked = 'the code changed', claimable_at_ms = NULL, "
        "blocked_by = '[\"one\"]' WHERE id = ?",
        (instance_id,),
    )
    connection.close()


def test_G12_a_blocked_instance_continues(filled: Command) -> None:
    block(filled, "open")
    assert "BLOCKED" in filled("show", "open").out
    done = filled("resume", "open")
    assert (done.code, done.out) == (0, "open is RUNNING: a worker that has its workflow continues it\n")
    assert json.loads(filled("show", "open", "--json").out)["state"] == "RUNNING"
    assert filled("verify").code == 0
    assert filled("run", "shop.py:checkout", "--id", "open").code in (0, 1), "it ran to its end"
    assert json.loads(filled("show", "open", "--json").out)["closed_at"] is not None


def test_json_has_the_state_after_the_request(filled: Command) -> None:
    block(filled, "open")
    assert json.loads(filled("resume", "open", "--json").out) == {"id": "open", "state": "RUNNING"}


@pytest.mark.parametrize(
    ("instance_id", "sentence"),
    [
        ("open", "'open' is REQUESTED, not PAUSED: there is nothing to resume"),
        ("good", "'good' is COMPLETED, so it cannot be resumed"),
        ("nobody", "no instance has the id 'nobody'"),
    ],
)
def test_an_instance_that_is_neither_paused_nor_blocked_is_refused_with_a_sentence(
    filled: Command, instance_id: str, sentence: str
) -> None:
    assert sentence in filled.refused("resume", instance_id)


def test_an_instance_is_paused_and_resumed(filled: Command) -> None:
    assert (
        filled("pause", "open", "--reason", "wait for Ada").out == "open is PAUSED: holdfast resume lets it continue\n"
    )
    shown = filled("show", "open").out
    assert "paused since" in shown
    assert "wait for Ada" in shown
    assert "open is REQUESTED" in filled("resume", "open").out


def test_a_pause_as_json(filled: Command) -> None:
    assert json.loads(filled("pause", "open", "--json").out) == {"id": "open", "state": "PAUSED", "reason": None}
    assert json.loads(filled("resume", "open", "--json").out) == {"id": "open", "state": "REQUESTED"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--extend", "soon"), "--extend takes seconds or a duration such as 30m or 2d, not 'soon'"),
        (("--extend", "1h"), "'open' has no deadline that could be extended"),
        (("--fail",), "none of the activities of 'open' has used up its retries"),
    ],
)
def test_a_resume_that_does_not_fit_is_refused_with_a_sentence(
    filled: Command, options: tuple[str, ...], sentence: str
) -> None:
    filled("pause", "open")
    assert sentence in filled.refused("resume", "open", *options)


def test_a_closed_instance_is_not_paused(filled: Command) -> None:
    assert "'good' is COMPLETED, so it cannot be paused any more" in filled.refused("pause", "good")

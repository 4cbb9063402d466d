"""``holdfast show``, ``history``, ``list`` and ``verify`` on a damaged store: each describes it and continues."""

import pytest
from tests.unit.cli.commands import Command, sql

DEEP = "CAST(replace(hex(zeroblob(100000)), '0', '[') AS BLOB)"
DAMAGE = [
    # table, what is set
    ("instances", "state = 'FOO'"),
    ("instances", "turn = 'many', created_at_ms = 'x', closed_at_ms = 'y'"),
    ("instances", "turn = -5"),
    ("instances", "created_at_ms = 9223372036854775807"),
    ("instances", "execution = 4611686018427387904"),
    ("instances", "input = '@deadbeef', outcome = x'ff'"),
    ("instances", f"outcome = CAST('{{\"data\":' AS BLOB) || {DEEP}"),
    ("instances", "state = 'FAILED', outcome = CAST('{\"data\":{\"type\":3}}' AS BLOB)"),
    ("history", "events = x'ff00'"),
    ("history", "events = '[]'"),
    ("history", f"events = {DEEP}"),
    ("history", 'events = CAST(\'[{"event":"nope"}]\' AS BLOB)'),
    ("history", "events = CAST(replace(CAST(events AS TEXT), '1', '99999999999999999999') AS BLOB)"),
    ("attempts", "state = 'BAR', ledger = 'x', input = x'7b', failure = x'ff', details = 7"),
    ("attempts", "scheduled_at_ms = 'x', started_at_ms = 'y', heartbeat_at_ms = 1.5"),
    ("inbox", "number = 1, stamp_ms = 'x', event = x'7b'"),
    ("kept", "value = x'ff'"),
    ("updates", "state = 'FOO', answer = x'ff'"),
]
ADDED = (
    "INSERT INTO kept VALUES (1, 'a', CAST('1' AS BLOB)), (1, '', CAST('1' AS BLOB))",
    "INSERT INTO updates VALUES (1, 'u', 'asked', NULL, NULL, x'00')",
)


@pytest.mark.parametrize(("table", "values"), DAMAGE)
def test_a_damaged_row_is_described_and_the_others_are_shown(filled: Command, table: str, values: str) -> None:
    which = "1" if table == "inbox" else "number = 1"
    for statement in (*ADDED, f"UPDATE {table} SET {values} WHERE {which}"):  # noqa: S608 - of a list above
        sql(filled.folder / "holdfast.db", statement)
    for command in (["show", "good"], ["show", "good", "--json"], ["show", "good", "--whole"], ["history", "good"]):
        done = filled(*command)
        assert (done.code, done.err) == (0, ""), (command, done)
        assert "good" in done.out or command[0] == "history"
    for command in (["list"], ["list", "--json"]):
        done = filled(*command)
        assert (done.code, done.err) == (0, ""), (command, done)
        assert "good" in done.out
        assert "open" in done.out, "the next row"
    done = filled("verify")
    assert done.code in (0, 1), "not every column is bound by a rule"
    assert done.err == ""
    assert "2 instances" in done.out


def test_a_text_that_is_no_text_is_one_sentence(filled: Command) -> None:
    sql(filled.folder / "holdfast.db", "UPDATE instances SET workflow = CAST(x'ff' AS TEXT) WHERE number = 1")
    for command in (["list"], ["show", "good"], ["history", "good"]):
        done = filled(*command)
        assert done.code == 3
        assert "whose text is not UTF-8" in " ".join(done.err.split())
    assert "cannot be read: 'utf-8' codec" in filled("verify").out


def test_a_worker_whose_state_is_none_is_listed(filled: Command) -> None:
    sql(filled.folder / "holdfast.db", "UPDATE workers SET state = 'FOO'")
    done = filled("workers", "--all")
    assert (done.code, done.err) == (0, "")
    assert "FOO" in done.out


def test_a_turn_that_cannot_be_decoded_is_named(filled: Command) -> None:
    sql(filled.folder / "holdfast.db", "UPDATE history SET events = x'ff' WHERE number = 1 AND turn = 1")
    for command in ("show", "history"):
        assert "damaged turn 1 cannot be decoded" in filled(command, "good").out
    done = filled("history", "good", "--json")
    assert done.code == 3
    assert "turn 1 of 'good' cannot be decoded" in " ".join(done.err.split())

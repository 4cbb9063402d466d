"""The batch function: a function in the schema that runs many statements in one call and checks the rows of each.

A migration creates it, which `tools/generate_batch.py` writes from the statements of this package; a test compares
them. Its arguments are the kinds of the statements, by their position in `BATCHED`, and all their values as one list of
strings. A statement with a negative kind may change any number of rows; any other statement changes exactly one, or the
call fails with `MISSED` and changes nothing.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from holdfast.storage.postgres.transaction import statements_of

FUNCTION: Final = "apply_changes_2"
"""The number grows when the text of the function changes: the release before still uses its own version."""
MISSED: Final = "HF001"
"""The SQLSTATE of a statement that did not change exactly one row."""

BATCHED: Final = (
    "begin_commit",
    "active_worker",
    "move_attempt",
    "commit_turn",
    "append_history",
    "insert_attempt",
    "start_numbered",
    "exit_responses",
    "delete_inbox_of_instance",
    "delete_asked_updates",
    "clear_timers",
    "cancel_activities",
    "has_read_all",
    "close_instance",
    "delete_inbox",
    "start_timer",
    "end_timer",
    "set_awaited_events",
    "insert_inbox",
    "count_event",
    "insert_message",
    "insert_received",
    "wake_instance",
    "exit_response",
    "insert_payload",
    "cancel_activity",
    "set_state_value",
    "delete_state_value",
    "release_instance",
    "set_event_policy",
    "answer_update",
    "commit_flow_turn",
    "save_flow",
)
"""The statements of the function, the most frequent first."""


class BatchedStatement(NamedTuple):
    """One statement with its values. `one`: it has to change exactly one row."""

    statement: str
    values: tuple[Any, ...]
    one: bool


@lru_cache
def kinds_of(schema: str) -> dict[str, int]:
    """The kinds of the statements of the function."""
    sql = statements_of(schema)
    return {getattr(sql, name): place for place, name in enumerate(BATCHED, 1)}


def call_of(schema: str, changes: Sequence[BatchedStatement]) -> tuple[str, str, str]:
    """The call of the function for statements that are all in `BATCHED`, with its two lists."""
    kinds = kinds_of(schema)
    numbers = [str(kinds[change.statement] if change.one else -kinds[change.statement]) for change in changes]
    values = ",".join([as_text(value) for change in changes for value in change.values])
    call = f'SELECT "{schema}".{FUNCTION}($1::smallint[], $2::text[])'
    return call, f"{{{','.join(numbers)}}}", f"{{{values}}}"


def as_text(value: Any) -> str:
    """A value as an element of a list of strings, which the function casts to the type it needs."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return f'"{_escaped(value)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"') if "\\" in text or '"' in text else str(text)


def definition(bodies: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The definition of the function, from its statements, each with the types of its values."""
    cases = "\n".join(_case(place, text, types) for place, (text, types) in enumerate(bodies, 1))
    return f"""CREATE FUNCTION {FUNCTION}(_kinds SMALLINT[], _given TEXT[]) RETURNS VOID LANGUAGE plpgsql
SET search_path FROM CURRENT AS $function$
DECLARE
    _at INT := 0;
    _met BIGINT;
BEGIN
    FOR _place IN 1 .. cardinality(_kinds) LOOP
        CASE abs(_kinds[_place])
{cases}
        END CASE;
        IF _kinds[_place] > 0 AND _met <> 1 THEN
            RAISE EXCEPTION 'change % of kind % met % rows', _place, _kinds[_place], _met USING ERRCODE = '{MISSED}';
        END IF;
    END LOOP;
END $function$;
"""


def _case(place: int, text: str, types: Sequence[str]) -> str:
    body = text
    for number in range(len(types), 0, -1):
        body = body.replace(f"${number}", f"_given[_at + {number}]::{types[number - 1]}")
    if body.startswith("SELECT"):
        body = "PERFORM" + body.removeprefix("SELECT")
    return f"""        WHEN {place} THEN
            {body};
            GET DIAGNOSTICS _met = ROW_COUNT;
            _at := _at + {len(types)};"""

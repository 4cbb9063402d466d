"""The group function: a function in the schema that writes a whole group in one call, in an implicit transaction.

The function locks the instances of the group in their order, inserts the id of the commit, runs the statements of the
group, and returns the server's clock, fresh numbers for instances, and the rows that its wake-ups need. There is no
BEGIN and no COMMIT: the server commits when the call ends, so a client that stops in the middle holds no rows.

A migration creates it, which `tools/generate_batch.py` writes from the statements of this package; a test compares
them. Statements are sent as *runs*: a kind, by its position in `BATCHED`, a number of rows, and their values as
strings. A run of more than one row of a kind in `SETS` is one statement over all of them. A run with a negative kind
may change any number of rows; any other run changes one row for each of its own, or the call fails with `MISSED`.

The settings of the function keep PostgreSQL from a plan that reads a whole table: a plan that was made when the tables
were empty is kept as long as the connection, and statistics may be missing or old.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

FUNCTION: Final = "commit_group_2"
"""The number grows when the text of the function changes: the release before still uses its own version."""
MISSED: Final = "HF001"
"""The SQLSTATE of a statement that did not change the rows that it was assumed to change."""
UNSUITABLE: Final = "HF002"
"""The SQLSTATE of a call in a transaction that is not READ COMMITTED or is read-only, by a default of the role."""
LOCK_TIMEOUT: Final = "2s"
"""How long a group waits for a row that another transaction has locked. Then it is retried."""

BATCHED: Final = (
    "active_worker",
    "lock_request",
    "start_numbered",
    "set_start_at",
    "set_deadline",
    "watch_instance",
    "move_attempt",
    "has_read_all",
    "commit_turn",
    "commit_flow_turn",
    "append_history",
    "set_version",
    "insert_payload",
    "insert_attempt",
    "insert_offer",
    "delete_inbox",
    "exit_response",
    "cancel_activity",
    "hasten_silence",
    "start_timer",
    "end_timer",
    "set_awaited_events",
    "forget_received",
    "set_event_policy",
    "set_state_value",
    "delete_state_value",
    "answer_update",
    "delete_attribute",
    "insert_attribute",
    "insert_received",
    "count_event",
    "insert_inbox",
    "insert_message",
    "wake_instance",
    "exit_responses",
    "delete_inbox_of_instance",
    "delete_asked_updates",
    "clear_timers",
    "cancel_activities",
    "close_instance",
    "set_error",
    "release_instance",
    "insert_request",
    "mark_trace",
    "handle_request",
    "advance_clock",
)
"""The statements of the function, in the order in which a turn runs them (`group_call`)."""
SETS: Final = frozenset(
    {
        "start_numbered",
        "move_attempt",
        "has_read_all",
        "commit_turn",
        "commit_flow_turn",
        "append_history",
        "insert_attempt",
        "delete_inbox",
        "start_timer",
        "end_timer",
        "set_awaited_events",
        "insert_inbox",
        "delete_inbox_of_instance",
        "clear_timers",
        "cancel_activities",
        "close_instance",
    }
)
"""The statements that run once for many rows. One that may change any number of rows is here only if it changes no
more when one of its rows is given twice. `exit_responses` and `delete_asked_updates` are not: without statistics the
plan for many rows reads the whole table."""
FRAME: Final = (
    "lock_instances",
    "lock_instances_and_ids",
    "begin_commit",
    "next_numbers",
    "wakeup_targets",
    "server_time",
)
"""The statements that the function runs before and after those of the members."""
SETTINGS: Final = {
    "search_path": "FROM CURRENT",
    "lock_timeout": f"= '{LOCK_TIMEOUT}'",
    "jit": "= off",
    "plan_cache_mode": "= force_generic_plan",
    "enable_seqscan": "= off",
    "enable_bitmapscan": "= off",
    "enable_hashjoin": "= off",
    "enable_mergejoin": "= off",
    "enable_material": "= off",
}
"""A disabled scan of a table without an index costs so much that the code of the statement would be compiled: hence
`jit`. A plan for the given number of rows always looks cheaper than a generic one, and would be made at each call."""

_PARAMETER: Final = re.compile(r"\$(\d+)")


class TypedStatement(NamedTuple):
    """A statement without the name of its schema, with the types of its parameters."""

    name: str
    text: str
    types: Sequence[str]


def definition(batched: Iterable[TypedStatement], frame: Mapping[str, str]) -> str:
    """The definition of the function, from the statements of `BATCHED` and the texts of those of `FRAME`."""
    cases = "\n".join(line for place, one in enumerate(batched, 1) for line in _case(place, one))
    settings = " ".join(f"SET {name} {value}" for name, value in SETTINGS.items())
    lock_both = bound(frame["lock_instances_and_ids"], "_numbers", "_ids")
    return f"""CREATE FUNCTION {FUNCTION}(
    _id BIGINT, _part BIGINT, _at_ms BIGINT, _numbers BIGINT[], _ids TEXT[],
    _kinds SMALLINT[], _counts INT[], _given TEXT[],
    _concerned BIGINT[], _wanted INT, _relaxed BOOLEAN
) RETURNS TEXT LANGUAGE plpgsql {settings} AS $function$
DECLARE
    _at INT := 0;
    _n INT;
    _met BIGINT;
    _fresh BIGINT[];
    _targets JSON;
    _server_ms BIGINT;
    _mark_ms BIGINT;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR (current_setting('transaction_read_only') = 'on' AND NOT pg_is_in_recovery()) THEN
        RAISE EXCEPTION 'the transaction is not READ COMMITTED, READ WRITE' USING ERRCODE = '{UNSUITABLE}';
    END IF;
    IF _relaxed THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(_ids) > 0 THEN
        {_performed(lock_both)};
    ELSIF cardinality(_numbers) > 0 THEN
        {_performed(bound(frame["lock_instances"], "_numbers"))};
    END IF;
    IF _id IS NOT NULL THEN
        {bound(frame["begin_commit"], "_id", "_part", "_at_ms")};
        GET DIAGNOSTICS _met = ROW_COUNT;
        IF _met <> 1 THEN
            RAISE EXCEPTION 'a commit of this id was made before' USING ERRCODE = '{MISSED}';
        END IF;
    END IF;
    FOR _place IN 1 .. cardinality(_kinds) LOOP
        _n := _counts[_place];
        CASE abs(_kinds[_place])
{cases}
        END CASE;
        IF _kinds[_place] > 0 AND _met <> _n THEN
            RAISE EXCEPTION 'run % of kind % met % rows of %', _place, _kinds[_place], _met, _n
                USING ERRCODE = '{MISSED}';
        END IF;
    END LOOP;
    IF _wanted > 0 THEN
        _fresh := ARRAY({bound(frame["next_numbers"], "_wanted")});
    END IF;
    IF cardinality(_concerned) > 0 THEN
        SELECT json_agg(_target) INTO _targets FROM ({bound(frame["wakeup_targets"], "_concerned")}) AS _target;
    END IF;
    SELECT * INTO _server_ms, _mark_ms FROM ({frame["server_time"]}) AS _read;
    RETURN '[' || _server_ms || ',' || _mark_ms || ',' || coalesce(to_json(_fresh)::text, 'null') || ','
        || coalesce(_targets::text, 'null') || ']';
END $function$;
"""  # noqa: S608 - the statements of this package


def bound(text: str, *values: str) -> str:
    """A statement with expressions in place of its parameters."""
    return _PARAMETER.sub(lambda found: values[int(found[1]) - 1], text)


def _case(place: int, statement: TypedStatement) -> Iterator[str]:
    types = statement.types
    one = bound(statement.text, *(f"_given[_at + {at}]::{kind}" for at, kind in enumerate(types, 1)))
    yield f"        WHEN {place} THEN  -- {statement.name}"
    if statement.name in SETS:
        yield "            IF _n = 1 THEN"
        yield f"                {_performed(one)};"
        yield "            ELSE"
        yield f"                {_performed(over_rows(statement))};"
        yield "            END IF;"
    else:
        yield f"            {_performed(one)};"
    yield "            GET DIAGNOSTICS _met = ROW_COUNT;"
    yield f"            _at := _at + _n * {len(types)};" if types else "            NULL;"


def over_rows(statement: TypedStatement) -> str:
    """The same statement for `_n` rows, whose values are in `given`. OFFSET 0 keeps the rows in their order."""
    width = len(statement.types)
    columns = ", ".join(
        f"_given[_at + (_row - 1) * {width} + {at}]::{kind} AS c{at}" for at, kind in enumerate(statement.types, 1)
    )
    rows = f"(SELECT {columns} FROM generate_series(1, _n) AS _row OFFSET 0) AS given"  # noqa: S608
    text = bound(statement.text, *(f"given.c{at}" for at in range(1, width + 1)))
    inserted = re.fullmatch(r"(INSERT INTO \w+ \([^()]*\)) VALUES \((.*?)\)( ON CONFLICT .*)?", text)
    if inserted is not None:
        return f"{inserted[1]} SELECT {inserted[2]} FROM {rows}{inserted[3] or ''}"  # noqa: S608
    before, condition = _split_at_condition(text)
    if before.startswith("DELETE"):
        return f"{before} USING {rows} WHERE {condition}"
    return f"{before} FROM {rows} WHERE {condition}"


def _split_at_condition(text: str) -> tuple[str, str]:
    """A statement in two, at the WHERE that is in no parentheses."""
    depth = 0
    for found in re.finditer(r"[()]| WHERE ", text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0 and found[0] == " WHERE ":
            return text[: found.start()], text[found.end() :]
    raise ValueError(f"a statement for many rows has no condition: {text}")


def _performed(text: str) -> str:
    return "PERFORM" + text.removeprefix("SELECT") if text.startswith("SELECT") else text

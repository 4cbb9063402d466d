"""Mutants of streams and of what a workflow keeps: each value once and in order, and state with its turn."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

STREAMS: Final = "tests/scenarios/test_streams.py"
PATHS: Final = "tests/scenarios/test_stream_paths.py"
DIGITS: Final = "tests/unit/core/test_streams.py"
STATE: Final = "tests/scenarios/test_state.py"
LIVE_UNIT: Final = "tests/unit/runtime/turns/test_live_instance.py"
AUDIT: Final = "tests/scenarios/test_verify_streams.py"

KEPT_AND_STREAMED: Final = (
    in_sql("values of an attempt that was asked to stop count", "L9", "enter_responses", "+state = 'RUNNING'", "1"),
    in_sql("values of somebody else count", "L13", "enter_responses", "owner = ?9", "?9 IS NOT NULL"),
    in_sql("the same values count twice", "L11", "enter_responses", "ledger / 1000000 = ?10", "?10"),
    in_sql("more values leave than have entered", "L14", "exit_pending", ">= ?1", ">= 0"),
    in_python(
        "values that wait wake nobody",
        "G5",
        "storage/relational/apply/streams",
        "key.execution, responses.event)",
        "key.execution, responses.event, wakes=False)",
    ),
    in_python(
        "values of a rejected turn stay counted",
        "L14",
        "storage/relational/apply/turns",
        "undo_values(transaction, values)",
        "pass",
    ),
    in_python(
        "a turn is taken although its values were stale",
        "L13",
        "storage/relational/apply/turns",
        "if not stale and entered and has_read_all and _advance(",
        "if not stale and _advance(",
    ),
    in_python(
        "stale values take others with them",
        "L13",
        "storage/relational/apply/streams",
        "undo_values(transaction, entries[:at])",
        "pass",
    ),
    in_python("values that ride with a turn never leave", "L5", "core/streams", "+ count * RESPONSE_EXIT", "", DIGITS),
    in_python("the last response has no room", "L12", "core/streams", "MAX_RESPONSES - 1", "MAX_RESPONSES", DIGITS),
    in_python(
        "values overtake those in the inbox",
        "L15",
        "runtime/turns/owned_instances",
        "live.run.values_received(key.activity) == values",
        "True",
        PATHS,
    ),
    in_python(
        "values of a turn that failed are lost",
        "L13",
        "runtime/turns/live_instance",
        "Applied):\n            self.done(outcome)\n        else:\n            self.store_alone()",
        "Applied):\n            self.done(outcome)",
        PATHS,
    ),
    in_python(
        "values are handed in twice",
        "L11",
        "runtime/turns/live_instance",
        "not isinstance(message.response, Unstored)",
        "True",
        LIVE_UNIT,
    ),
    in_python(
        "a body never waits for the disk",
        "L15",
        "runtime/attempts/streams",
        "return len(waiting) >= self._most",
        "return False",
        PATHS,
    ),
    in_python(
        "a number is given to two messages",
        "L11",
        "runtime/attempts/streams",
        "self._next_number += count",
        "self._next_number += 1",
        STREAMS,
    ),
    in_python(
        "a stream that begins again does not say so",
        "L15",
        "replay/streams",
        "self._attempt = attempt\n            self.arrived",
        "self.arrived.copy",
        STREAMS,
    ),
    in_python(
        "of values that came together one is given",
        "L15",
        "replay/streams",
        "self.arrived.extend(event.more)",
        "pass",
        STREAMS,
    ),
    in_python(
        "leaving a loop leaves the body running",
        "L15",
        "replay/streams",
        "self._activities.abandon(number)",
        "pass",
        STREAMS,
    ),
    in_python(
        "what left leg 2 may be missing from the history",
        "L13",
        "audit/attempts",
        "is_open or outcome is not None",
        "False",
        AUDIT,
    ),
    in_python(
        "a large value among others stays in the row",
        "L15",
        "storage/large_payloads",
        "[_aside(value, payloads, large_value) for value in event.values]",
        "list(event.values)",
        STREAMS,
    ),
    in_python(
        "what was taken away from the state is still there",
        "G11",
        "storage/relational/apply/turns",
        "if change.value is None:",
        "if False:",
    ),
    in_sql(
        "a value of the state is kept once only",
        "G11",
        "set_state_value",
        "DO UPDATE SET value = excluded.value",
        "DO NOTHING",
    ),
    in_python("a changed state is not committed", "G11", "core/run", "self.state_values[key] = value", "pass", STATE),
)

"""Mutants of how instances are ended from outside, how ids are used again, and where large inputs are kept."""

from typing import Final

from tools.mutations.mutant import LARGE_INPUTS, POLICIES, TERMINATE, in_python, in_sql

IDS: Final = (
    in_python(
        "an instance is created after its first activity was scheduled",
        "A9",
        "storage/relational/apply/instances",
        "return now_ms if start.first is None else min(start.first.stamp_ms, now_ms)",
        "return now_ms",
    ),
    in_sql("the end leaves the owner", "G1", "terminate_instance", "owner = NULL, ", ""),
    in_sql("the end leaves it claimable", "G5", "terminate_instance", "claimable_at_ms = NULL, ", ""),
    in_sql("the end is no turn", "G9", "terminate_instance", "turn = turn + 1", "turn = turn"),
    in_sql("an id means its oldest instance", "G3", "find_instance", " AND superseded_at_ms IS NULL", ""),
    in_python(
        "the end leaves things pending",
        "C5",
        "storage/relational/apply/instance_endings",
        "    settle_pending(transaction, number)",
        "    pass",
    ),
    in_python(
        "the start of what never ran is lost with its end",
        "G3",
        "storage/relational/apply/instance_endings",
        "[ended] if found.turn else [*_unread_start(transaction, number), ended]",
        "[ended]",
    ),
    in_python(
        "what is closed is ended again",
        "A9",
        "storage/relational/apply/children",
        "if found.state in INSTANCE_FINAL:",
        "if not found:",
    ),
    in_python(
        "the replaced one goes on",
        "G3",
        "storage/relational/apply/instances",
        "terminate_with_children(transaction, existing, REPLACED)",
        "()",
    ),
    in_python(
        "a closed one is replaced",
        "G3",
        "core/admission",
        "return StartVerdict.CREATE if closed else StartVerdict.REPLACE",
        "return StartVerdict.REPLACE",
    ),
    in_python(
        "bodies of an ended instance go on",
        "A9",
        "runtime/session",
        "self.worker.instance_closed(number)",
        "pass",
        TERMINATE,
    ),
    in_python(
        "bodies of an instance that was ended elsewhere go on",
        "A9",
        "runtime/duties/reconciler",
        "self._attempts.cancel_attempt(row.key, is_awaited=row.cancel_requested_at_ms is not None)",
        "pass",
        TERMINATE,
    ),
    in_python(
        "whoever waits gets the successor's result",
        "G3",
        "client/instance_calls",
        "record = await self.record(instance_id, record.number)",
        "record = await self.record(instance_id, None)",
        POLICIES,
    ),
    in_python(
        "two instances of an id have one idempotency key",
        "G3",
        "runtime/attempts/running_attempt",
        "/{key.number}/",
        "/",
        POLICIES,
    ),
    in_python(
        "a claimer gets a reference for an input",
        "G13",
        "storage/relational/apply/attempts",
        "with_input(transaction, attempt_of(row))",
        "attempt_of(row)",
    ),
    in_python(
        "a large input of an instance is not kept",
        "G11",
        "storage/relational/apply/instances",
        "insert_payloads(transaction, number, (large,))",
        "pass",
    ),
    in_python(
        "the payloads of a history are not loaded",
        "G8",
        "storage/relational/reads",
        "        await self._add_payloads(loaded)\n",
        "",
        LARGE_INPUTS,
    ),
)

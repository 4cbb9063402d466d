"""Asking a run: its own function answers from the state that it has now, and nothing of it is changed (G11).

Whoever asks has to see to it that this state is committed: that no turn of the run is on its way to disk.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.core.answers import Answer, AnswerKind
from holdfast.payloads.failures import failure_of
from holdfast.replay.output import LogLine
from holdfast.replay.run import WorkflowRun

_encode: Final = msgspec.json.Encoder().encode


class Asked(NamedTuple):
    """An answer, and what the handler logged."""

    answer: Answer
    logs: Sequence[LogLine] = ()


def ask(run: WorkflowRun, name: str, data: bytes) -> Asked:
    """Let a run answer a query. Whatever its code raises is the answer, too."""
    handler = run.handlers.queries.get(name)
    if handler is None:
        return Asked(unknown(run.handlers.queries))
    try:
        value, logs = run.look(f"the query {name!r}", lambda: handler.call(data))
        return Asked(Answer(AnswerKind.DONE, msgspec.Raw(handler.signature.encode_result(value))), logs)
    except Exception as error:  # noqa: BLE001 - the user's code; whoever asked is told
        return Asked(failed(error))


def failed(error: BaseException) -> Answer:
    """The answer of a handler that raised."""
    return Answer(AnswerKind.FAILED, msgspec.Raw(_encode(failure_of(error))))


def refused(error: BaseException) -> Answer:
    """The answer where nobody could be asked."""
    return Answer(AnswerKind.REFUSED, msgspec.Raw(_encode(failure_of(error))))


def unknown(handlers: Iterable[str]) -> Answer:
    """The answer where there is no handler of that name."""
    return Answer(AnswerKind.UNKNOWN, msgspec.Raw(_encode(sorted(handlers))))

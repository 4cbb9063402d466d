"""Asking a run: its own function answers from the state that it has now, and nothing of it is changed (G11).

Whoever asks has to see to it that this state is committed: that no turn of the run is on its way to disk.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.core.queries import Reply, ReplyKind, unknown_handler
from holdfast.core.run import LogLine
from holdfast.replay.queries import failed_reply
from holdfast.replay.run import WorkflowRun


class QueryAnswer(NamedTuple):
    """An answer, and what the handler logged."""

    answer: Reply
    logs: Sequence[LogLine] = ()


def ask(run: WorkflowRun, name: str, data: bytes) -> QueryAnswer:
    """Let a run answer a query. Whatever its code raises is the answer, too."""
    handler = run.handlers.queries.get(name)
    if handler is None:
        return QueryAnswer(unknown_handler(run.handlers.queries))
    try:
        value, logs = run.answer_read_only(f"the query {name!r}", lambda: handler.call(data))
        answer = run.checked(handler.signature.encode_result(value), f"the answer of query {name!r}", value)
        return QueryAnswer(Reply(ReplyKind.DONE, msgspec.Raw(answer)), logs)
    except KeyboardInterrupt:
        raise  # it means the process, and not this code
    except BaseException as error:  # noqa: BLE001 - the user's code; a CancelledError, too, is for whoever asked
        return QueryAnswer(failed_reply(error))

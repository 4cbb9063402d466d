"""Queries of a run: handlers that its code registers, called in read-only mode (G11).

While read-only code runs, a loop that refuses every change takes the place of the workflow's own. A change that this
loop cannot see, such as a future of the workflow resolved by hand, is found afterwards and taints the run.
"""

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, Final

import msgspec

from holdfast.core.queries import Reply, ReplyKind, unknown_handler
from holdfast.core.run import LogLine, QueryAnswer, TurnOutput
from holdfast.errors import TurnTooLong
from holdfast.payloads.failures import failure_of
from holdfast.payloads.signature import Signature
from holdfast.replay.context import RunContext
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.restricted_loops import ReadOnlyLoop

_encode: Final = msgspec.json.Encoder().encode


class Handler:
    """One function, with the context variables of the code that registered it."""

    __slots__ = ("_signature", "context", "fn", "name")

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.name = name
        self.fn = fn
        self.context: Context = copy_context()
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature:
        """Its parameters and result, worked out on the first call: most handlers are never called."""
        if self._signature is None:
            self._signature = Signature.of(self.fn)
        return self._signature

    def call(self, data: bytes) -> Any:
        """Call it with encoded arguments, in its own context."""
        args, kwargs = self.signature.decode_arguments(data)
        return self.context.copy().run(self.fn, *args, **kwargs)


class QueryHandlers:
    """The query handlers of one run by name. A later registration replaces an earlier one."""

    __slots__ = ("_context", "by_name")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.by_name: dict[str, Handler] = {}

    def answer(self, name: str, data: bytes) -> QueryAnswer:
        """Call the handler of a query. Any exception that its code raises becomes the reply."""
        handler = self.by_name.get(name)
        if handler is None:
            return QueryAnswer(unknown_handler(self.by_name))
        context = self._context
        try:
            value, logs = call_read_only(context, f"the query {name!r}", lambda: handler.call(data))
            result = context.checked(handler.signature.encode_result(value), f"the answer of query {name!r}", value)
            return QueryAnswer(Reply(ReplyKind.DONE, msgspec.Raw(result)), logs)
        except KeyboardInterrupt:
            raise  # meant for the process, not for this code
        except BaseException as error:  # noqa: BLE001 - the user's code; also a CancelledError is for the sender
            return QueryAnswer(failed_reply(error))


def call_read_only(context: RunContext, what: str, work: Callable[[], Any]) -> tuple[Any, Sequence[LogLine]]:
    """The result of read-only code, called between two steps of the workflow, and the lines that it logged.

    A change that the code makes in spite of the read-only loop taints the run, which must not be used any more.
    """
    context.loop.check_evicted()
    before = context.output
    context.output = TurnOutput()
    loop = ReadOnlyLoop(what, context.loop.host, context.loop.time())
    turn = context.guarded()
    turn.begin()
    try:
        value = loop.run(context.loop.watch, work)
        if turn.findings:
            raise turn.findings[0]  # the code caught it
        effects = context.output.effects
        return value, () if effects is None else effects.logs
    finally:
        turn.end()
        output = context.output
        context.output = before
        context.is_tainted |= not _is_untouched(context.loop, output)
        if context.is_tainted:
            loop.refuse()


def _is_untouched(loop: WorkflowLoop, output: TurnOutput) -> bool:
    """Whether no callback of the workflow is ready, and no command was given."""
    if loop.is_closed():
        return True
    try:
        loop.run_until_idle(max_steps=0)
    except TurnTooLong:
        return False
    effects = output.effects
    return not (
        output.events
        or output.scheduled
        or (effects is not None and (effects.sent or effects.state_values or effects.attributes))
    )


def failed_reply(error: BaseException) -> Reply:
    """The reply of a handler that raised."""
    return Reply(ReplyKind.FAILED, msgspec.Raw(_encode(failure_of(error))))


def refused_reply(error: BaseException) -> Reply:
    """The reply where no handler could be called."""
    return Reply(ReplyKind.REFUSED, msgspec.Raw(_encode(failure_of(error))))

"""Updates inside a run: judged first, then handled by a task of the workflow, and answered with the turn that ends it.

A validator looks, and its verdict is not repeated by a replay: what it let through stands in the history. A handler is
workflow code like any other, and may wait for whatever is durable.
"""

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.history import Payload
from holdfast.core.queries import Reply, ReplyKind, unknown_handler
from holdfast.errors import HistoryMismatch, UpdateUnfinished
from holdfast.payloads.failures import failure_of
from holdfast.replay.loop.tasks import Evicted
from holdfast.replay.queries import failed_reply

if TYPE_CHECKING:
    from holdfast.replay.calls import WorkflowCalls
    from holdfast.replay.loop.event_loop import WorkflowLoop
    from holdfast.replay.queries import UpdateHandler

_encode: Final = msgspec.json.Encoder().encode


class Updates:
    """The updates of one run. `open` has the ids of those that were accepted and are not answered yet."""

    def __init__(self, calls: "WorkflowCalls", loop: "WorkflowLoop") -> None:
        self._calls = calls
        self._loop = loop
        self.open: set[str] = set()

    def refusal(self, event: ev.UpdateAccepted) -> Reply | None:
        """Why an update is not accepted; None if it is. A validator that changed something makes it raise."""
        handlers = self._calls.handlers.updates
        handler = handlers.get(event.name)
        if handler is None:
            return unknown_handler(handlers)
        try:
            args, kwargs = handler.signature.decode_arguments(self._calls.data_of(event.input))
            if handler.validator is not None:
                what = f"the validator of update {event.name!r}"
                _, logs = self._calls.answer_read_only(what, lambda: handler.validate(args, kwargs))
                self._calls.keep_logs(logs)
        except KeyboardInterrupt:
            raise  # it means the process, and not this code
        except BaseException as error:
            if self._calls.is_spoiled:
                raise
            return Reply(ReplyKind.REJECTED, failed_reply(error).data)
        return None

    def refuse(self, update_id: str, answer: Reply) -> None:
        """Tell its sender, and nobody else: nothing of it goes into the history."""
        self._calls.answer(update_id, answer)

    def begin(self, event: ev.UpdateAccepted) -> None:
        """Start the handler of an update that was accepted, now or in the run that is replayed."""
        handler = self._calls.handlers.updates.get(event.name)
        if handler is None:
            raise HistoryMismatch(
                f"the history has an update {event.name!r}, and the code has registered no handler of that name"
            )
        self.open.add(event.id)
        self._calls.answer(event.id, None)
        name = f"update {event.name} {event.id}"
        self._loop.create_task(self._handle(handler, event), name=name, context=handler.context.copy())

    async def _handle(self, handler: "UpdateHandler", event: ev.UpdateAccepted) -> None:
        try:
            args, kwargs = handler.signature.decode_arguments(self._calls.data_of(event.input))
            value: Any = handler.fn(*args, **kwargs)
            if isawaitable(value):
                value = await value
            data = handler.signature.encode_result(value)
            self._calls.checked(data, f"the result of update {event.name!r}", value)
        except (Evicted, KeyboardInterrupt, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._fail(event, error)  # of something it waited for: nobody cancelled the handler itself
            else:
                self._fail(event, UpdateUnfinished(f"the execution ended before its update {event.name!r} was done"))
        except BaseException as error:  # noqa: BLE001 - the user's code; whoever sent the update is told
            self._fail(event, error)
        else:
            payload = Payload(msgspec.Raw(data))
            self._finish(ev.UpdateHandlerCompleted(id=event.id, result=payload), Reply(ReplyKind.DONE, payload.data))

    def _fail(self, event: ev.UpdateAccepted, error: BaseException) -> None:
        self._calls.failed_with = (*self._calls.failed_with, error)
        payload = Payload(msgspec.Raw(_encode(failure_of(error))))
        self._finish(ev.UpdateHandlerFailed(id=event.id, failure=payload), Reply(ReplyKind.FAILED, payload.data))

    def _finish(self, command: ev.UpdateHandlerCompleted | ev.UpdateHandlerFailed, answer: Reply) -> None:
        self._loop.check_evicted()
        self.open.discard(command.id)
        self._calls.finish_update(command, answer)

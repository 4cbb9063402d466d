"""Updates of a run: validated first, then handled by a task of the workflow, and answered with the turn that ends it.

A validator is read-only, and a replay does not repeat its verdict: the history has the updates that were accepted. A
handler is workflow code like any other, and may await any durable call.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context, ContextVar
from inspect import isawaitable
from typing import Any, Final

import msgspec

from holdfast.core import history as ev
from holdfast.core.history import Payload
from holdfast.core.queries import Reply, ReplyKind, unknown_handler
from holdfast.errors import HistoryMismatch, UpdateUnfinished
from holdfast.payloads.failures import failure_of
from holdfast.replay.context import RunContext
from holdfast.replay.loop.tasks import Evicted
from holdfast.replay.queries import Handler, call_read_only, failed_reply

_encode: Final = msgspec.json.Encoder().encode
handled_update: Final[ContextVar[ev.UpdateAccepted | None]] = ContextVar("holdfast_update", default=None)
"""The update whose handler or validator runs, also in the tasks that they create."""
MOST_NAMED: Final = 10
"""How many unfinished updates one warning names."""


class UpdateHandler(Handler):
    """The function of an update, and its validator."""

    __slots__ = ("validator",)

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        super().__init__(name, fn)
        self.validator: Callable[..., object] | None = None

    def context_of(self, event: ev.UpdateAccepted) -> Context:
        """The context in which an update is validated and handled."""
        context = self.context.copy()
        context.run(handled_update.set, event)
        return context

    def validate(self, event: ev.UpdateAccepted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Call the validator. Its result does not count, except an awaitable, which is refused."""
        if self.validator is None:
            return None
        found = self.context_of(event).run(self.validator, *args, **kwargs)
        return found if isawaitable(found) else None


class Updates:
    """The updates of one run, and their handlers by name. A later registration replaces an earlier one."""

    __slots__ = ("_context", "handlers", "open")

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.handlers: dict[str, UpdateHandler] = {}
        self.open: dict[str, str] = {}
        """The updates that were accepted and are not answered yet: their names by their ids, in their order."""

    def accepts(self, event: ev.UpdateAccepted) -> bool:
        """Whether an update is accepted. A refusal is answered with this turn, and is not recorded in the history.

        Raises if the validator changed the run.
        """
        refusal = self._refusal(event)
        if refusal is None:
            return True
        self._context.output.ensure_effects().answer_update(event.id, refusal)
        return False

    def _refusal(self, event: ev.UpdateAccepted) -> Reply | None:
        context = self._context
        handler = self.handlers.get(event.name)
        if handler is None:
            return unknown_handler(self.handlers)
        try:
            args, kwargs = handler.signature.decode_arguments(context.data_of(event.input))
            if handler.validator is not None:
                what = f"the validator of update {event.name!r}"
                _, logs = call_read_only(context, what, lambda: handler.validate(event, args, kwargs))
                if logs:
                    context.output.ensure_effects().logs.extend(logs)
        except KeyboardInterrupt:
            raise  # meant for the process, not for this code
        except BaseException as error:
            if context.is_tainted:
                raise
            return Reply(ReplyKind.REJECTED, failed_reply(error).data)
        return None

    def begin(self, event: ev.UpdateAccepted) -> None:
        """Start the handler of an accepted update."""
        handler = self.handlers.get(event.name)
        if handler is None:
            raise HistoryMismatch(
                f"the history has an update {event.name!r}, and the code has registered no handler of that name"
            )
        context = self._context
        self.open[event.id] = event.name
        context.output.ensure_effects().answer_update(event.id, None)
        name = f"update {event.name} {event.id}"
        context.loop.create_task(self._handle(handler, event), name=name, context=handler.context_of(event))

    def warn_if_unfinished(self) -> None:
        """Log the updates whose handlers the end of the execution cancels (G16)."""
        if not self.open:
            return
        shown = [f"{name!r} (id {update_id!r})" for update_id, name in list(self.open.items())[:MOST_NAMED]]
        more = len(self.open) - len(shown)
        self._context.log(
            logging.WARNING,
            "the workflow ended while the handlers of %d of its updates had not finished: %s%s; "
            "await hf.wait_until(hf.all_handlers_finished) before the end lets them finish",
            len(self.open),
            ", ".join(shown),
            f" and {more} more" if more else "",
        )

    async def _handle(self, handler: UpdateHandler, event: ev.UpdateAccepted) -> None:
        context = self._context
        try:
            args, kwargs = handler.signature.decode_arguments(context.data_of(event.input))
            value: Any = handler.fn(*args, **kwargs)
            if isawaitable(value):
                value = await value
            data = handler.signature.encode_result(value)
            context.checked(data, f"the result of update {event.name!r}", value)
        except (Evicted, KeyboardInterrupt, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._fail(event, error)  # raised by an awaited object; the handler itself was not cancelled
            else:
                self._fail(event, UpdateUnfinished(f"the execution ended before its update {event.name!r} was done"))
        except BaseException as error:  # noqa: BLE001 - the user's code; the sender of the update receives it
            self._fail(event, error)
        else:
            payload = Payload(msgspec.Raw(data))
            self._finish(ev.UpdateHandlerCompleted(id=event.id, result=payload), Reply(ReplyKind.DONE, payload.data))

    def _fail(self, event: ev.UpdateAccepted, error: BaseException) -> None:
        context = self._context
        context.errors = (*context.errors, error)
        payload = Payload(msgspec.Raw(_encode(failure_of(error))))
        self._finish(ev.UpdateHandlerFailed(id=event.id, failure=payload), Reply(ReplyKind.FAILED, payload.data))

    def _finish(self, command: ev.UpdateHandlerCompleted | ev.UpdateHandlerFailed, reply: Reply) -> None:
        context = self._context
        context.loop.check_evicted()
        self.open.pop(command.id, None)
        context.output.events.append(command)
        context.output.ensure_effects().answer_update(command.id, reply)

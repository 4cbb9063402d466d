"""Mutants of events and cancellation: what is taken, kept, counted and delivered once."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

EVENTS: Final = "tests/scenarios/test_events.py"
SET_ASIDE: Final = "tests/scenarios/test_events_set_aside.py"
EVENT_PATHS: Final = "tests/scenarios/test_event_paths.py"
CANCELLATION: Final = "tests/scenarios/test_cancellation.py"
CONTINUED: Final = "tests/scenarios/test_continue_as_new.py"

MESSAGES: Final = (
    in_python(
        "the same event is taken twice",
        "G6",
        "storage/relational/apply/messages",
        "seen_before=bool(message_id)",
        "seen_before=False",
    ),
    in_python(
        "an event is not counted",
        "G6",
        "storage/relational/apply/messages",
        "transaction.update(transaction.sql.count_event, verdict is EventVerdict.DELIVER, number)",
        "pass",
    ),
    in_python(
        "an event that is waited for wakes nobody",
        "G5",
        "storage/relational/apply/messages",
        "transaction.sql.count_event, verdict is EventVerdict.DELIVER, number",
        "transaction.sql.count_event, False, number",
    ),
    in_sql("a kept event makes its instance claimable", "G6", "release_instance", "inbox.name IS NULL OR", "1 OR"),
    in_sql("what a turn took stays counted", "G6", "set_awaited_events", "mail = mail - ?2", "mail = mail - 0 * ?2"),
    in_python("a wait is given the newest event", "G6", "replay/events", "waiting.popleft()", "waiting.pop()", EVENTS),
    in_python(
        "an event that does not fit ends the workflow",
        "G6",
        "replay/events",
        "if recorded is False:",
        "if recorded is not True:",
        SET_ASIDE,
    ),
    in_python(
        "a wait loses its place to an event that is set aside",
        "G6",
        "replay/events",
        ".appendleft(wait)",
        ".append(wait)",
        SET_ASIDE,
    ),
    in_python(
        "the id of an event that was set aside counts as delivered",
        "G6",
        "storage/relational/apply/messages",
        "for message_id in effects.ids_set_aside:",
        "for message_id in ():",
        SET_ASIDE,
    ),
    in_python(
        "the event of a start is set aside where its sender could be refused",
        "G6",
        "runtime/turns/live_instance",
        "misfit = self.run.event_misfit(event)\n",
        "misfit = None\n",
        SET_ASIDE,
    ),
    in_python(
        "a start that finds its instance leaves an event that does not fit to the store",
        "G6",
        "client/embedded_worker",
        "if start.mail is None or start",
        "if start.mail is not None or start",
        SET_ASIDE,
    ),
    in_python(
        "a sender beside the code learns nothing of a value that does not fit",
        "G6",
        "runtime/turns/live_instance",
        "if (misfit := self.run.event_misfit(event)) is not None:",
        "if (misfit := self.run.event_misfit(event)) is not None and not event.name:",
        SET_ASIDE,
    ),
    in_python(
        "replay decides anew what is set aside",
        "G12",
        "replay/run",
        "self.events.is_set_aside = isinstance(following, ev.EventSetAside)",
        "self.events.is_set_aside = False",
        SET_ASIDE,
    ),
    in_python(
        "a kept event is never looked at again",
        "G6",
        "runtime/turns/live_instance",
        "while self.kept_events and",
        "while False and",
        EVENTS,
    ),
    in_python(
        "kept events come in the wrong order",
        "G6",
        "runtime/turns/live_instance",
        "self.kept_events[name].popleft()",
        "self.kept_events[name].pop()",
        EVENTS,
    ),
    in_python(
        "a request to end is told to nobody",
        "A9",
        "storage/relational/apply/instance_endings",
        "    put_in_inbox(transaction, found.number, found.execution, event, at_ms=at_ms)\n",
        "",
    ),
    in_python(
        "whoever was asked to end ends as failed",
        "A9",
        "replay/run",
        "if self._cancel_reason is not None and (main.cancelled() or continuation is not None):",
        "if continuation is not None and not error:",
        CANCELLATION,
    ),
    in_python(
        "whoever was asked to end begins anew",
        "A9",
        "replay/run",
        "(main.cancelled() or continuation is not None)",
        "main.cancelled()",
        CONTINUED,
    ),
    in_python(
        "an event overtakes those of other processes",
        "G10",
        "runtime/turns/messages",
        "await self._inbox.read()",
        "pass",
        EVENT_PATHS,
    ),
    in_python(
        "an event overtakes one that goes alone",
        "G10",
        "runtime/turns/messages",
        "or behind or message.id in self._alone",
        "",
        EVENT_PATHS,
    ),
    in_python(
        "an event with an id rides", "G6", "runtime/turns/messages", "and not message.message_id", "", EVENT_PATHS
    ),
    in_python(
        "an event overtakes one of its own turn",
        "G10",
        "runtime/turns/live_instance",
        "self.leftover_events or not is_",
        "not is_",
        EVENT_PATHS,
    ),
    in_python(
        "an event of a rejected turn is lost",
        "G6",
        "runtime/turns/live_instance",
        "StoreError)):\n            self.done(outcome)\n        else:\n            self.store_alone()",
        "StoreError)):\n            self.done(outcome)",
        EVENT_PATHS,
    ),
    in_python(
        "an event whose turn may be on disk is sent again",
        "G11",
        "runtime/turns/live_instance",
        "isinstance(outcome.error, StoreError)",
        "False",
        EVENT_PATHS,
    ),
)

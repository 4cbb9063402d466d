"""Mutants of queries and updates: what may only look, what is taken once, and who is told what."""

from typing import Final

from tools.mutations.mutant import KIT, in_python, in_sql

QUERIES: Final = "tests/scenarios/test_queries.py"
READ_ONLY: Final = "tests/scenarios/test_read_only.py"
UPDATES: Final = "tests/scenarios/test_updates.py"
ENDINGS: Final = "tests/scenarios/test_update_endings.py"
WAITING: Final = "tests/scenarios/test_waiting_queries.py"
STARTS: Final = "tests/scenarios/test_starts_run_code_once.py"
AT_END: Final = "tests/scenarios/test_messages_at_the_end.py"
REFLECTING: Final = "tests/scenarios/test_queries_reflect_messages.py"

ASKING: Final = (
    in_python(
        "a query that raises a CancelledError ends the one who answers",
        "G11",
        "replay/asking",
        "except BaseException as error:",
        "except Exception as error:",
        f"{READ_ONLY}::test_G11_a_handler_that_raises_no_ordinary_exception_harms_neither_who_asks_nor_the_worker",
    ),
    in_python(
        "a query is answered for an asker who has gone", "G11", "runtime/queries", "told.cancel()", "pass", WAITING
    ),
    in_python(
        "a damaged history is no error of the store",
        "C1",
        "runtime/queries",
        "if isinstance(error, msgspec.MsgspecError):",
        "if False:",
        WAITING,
    ),
    in_python(
        "a query sees a turn on its way to disk",
        "G11",
        "runtime/queries",
        "if not live.busy:",
        "if True:",
        f"{QUERIES}::test_G11_a_query_never_sees_a_turn_that_is_on_its_way_to_disk",
    ),
    in_python(
        "a live instance answers before its inbox is read",
        "G5",
        "runtime/queries",
        "    await place.take_messages()",
        "    await asyncio.sleep(0)",
        f"{REFLECTING}::test_G5_a_query_reflects_an_event_whose_wake_up_was_lost",
    ),
    in_python(
        "a live instance answers while messages wait behind its turn",
        "G5",
        "runtime/live",
        "if unapplied is not None and unapplied <= row:",
        "if False:",
        f"{REFLECTING}::test_G5_a_query_waits_for_what_arrived_while_a_turn_was_being_written",
    ),
    in_python(
        "a query computes a side effect",
        "G11",
        "replay/calls",
        "if recorded is None and self.needs_turn is not None:",
        "if False:",
        f"{REFLECTING}::test_G11_the_value_of_a_side_effect_is_shown_only_when_it_is_recorded",
    ),
    in_python(
        "a query misses a turn that is committed while it reads",
        "G11",
        "runtime/queries",
        "if (current.execution, current.turn, current.state) !=",
        "if False and (current.execution, current.turn, current.state) !=",
        f"{REFLECTING}::test_G11_a_turn_that_is_committed_while_the_store_is_read_is_not_missed",
    ),
    in_python(
        "a query ignores who owns the instance",
        "G11",
        "runtime/queries",
        "        if await self._is_owned(record):",
        "        if False:",
        f"{REFLECTING}::test_G11_a_query_does_not_foretell_the_turn_of_an_owner",
    ),
    in_python(
        "the end of the main function is not deferred for messages",
        "G14",
        "runtime/live",
        "last = max((at for at, message in enumerate(messages) if _was_acknowledged(message)), default=0)",
        "last = 0",
        AT_END,
    ),
    in_python(
        "a replay ends the code before the messages at its end",
        "G14",
        "replay/run",
        "self._feed(event, position in deferring)",
        "self._feed(event, False)",
        AT_END,
    ),
    in_python(
        "messages are applied before a continue-as-new",
        "G4",
        "replay/run",
        "and not self.winds_up and not _continues(self._main)",
        "and not self.winds_up",
        AT_END,
    ),
    in_python(
        "the event of a start is delivered twice",
        "G14",
        "storage/relational/members",
        " or (outcome.created and start.mail_taken)",
        "",
        KIT,
    ),
    in_python(
        "a start that finds its instance runs the code",
        "G3",
        "client/beside",
        "            if await self._finds(start):",
        "            if False:",
        STARTS,
    ),
    in_python(
        "starts of one id at the same time all run the code",
        "G3",
        "client/beside",
        "while (earlier := self._starting.get(start.id)) is not None:",
        "while (earlier := None) is not None:",
        STARTS,
    ),
    in_python(
        "a first turn that failed is run again",
        "G12",
        "runtime/instances",
        "if failure is not None and (record.execution, record.turn) == (1, 0):",
        "if False:",
        STARTS,
    ),
    in_python(
        "code that is torn down has the time of a turn",
        "G12",
        "runtime/watchdog",
        "pause_seconds = teardown_seconds if self.is_tearing_down else turn_seconds",
        "pause_seconds = turn_seconds",
        "tests/scenarios/test_closing.py",
    ),
    in_python(
        "a run that a query has changed goes on",
        "G11",
        "runtime/queries",
        "if live.run.is_spoiled:",
        "if False:",
        READ_ONLY,
    ),
    in_python(
        "a query may wake the workflow",
        "G11",
        "replay/read_only",
        "    except TurnTooLong:\n        return False",
        "    except TurnTooLong:\n        return True",
        READ_ONLY,
    ),
    in_python(
        "a query may call what is durable",
        "G11",
        "replay/run",
        "        loop.refuse()",
        "        return None",
        READ_ONLY,
    ),
    in_python(
        "the same update is applied twice",
        "G6",
        "core/updates",
        "if known is not None and",
        "if False and known is not None and",
    ),
    in_python(
        "a rejected update cannot be sent again",
        "G9",
        "core/updates",
        "REFUSALS: Final = frozenset({UpdateState.REJECTED, UpdateState.UNKNOWN})",
        "REFUSALS: Final = frozenset({UpdateState.UNKNOWN})",
    ),
    in_sql("an answer takes the place of another", "G11", "answer_update", "AND answer IS NULL", "AND 1"),
    in_python(
        "an update wakes nobody",
        "G5",
        "storage/relational/delivery",
        'event, name="")\n        transaction.do(transaction.sql.wake_instance, found.number)',
        'event, name="")',
    ),
    in_python(
        "an update that nobody took outlives its instance",
        "G7",
        "storage/relational/closing",
        "    do(sql.forget_asked_updates, number)\n",
        "",
    ),
    in_python(
        "a validator is not asked",
        "G11",
        "replay/updates",
        "if handler.validator is not None:",
        "if False:",
        UPDATES,
    ),
    in_python(
        "a rejected update stays in the inbox",
        "G11",
        "runtime/live",
        "        self.run.updates.refuse(event.id, refusal)\n        done.append(message)\n",
        "        self.run.updates.refuse(event.id, refusal)\n",
        UPDATES,
    ),
    in_python(
        "an execution that ends still takes updates",
        "G4",
        "runtime/live",
        "if self.run.is_ending and not self.run.is_end_deferred:",
        "if False:",
        ENDINGS,
    ),
    in_python(
        "nobody learns that an update was accepted",
        "G11",
        "replay/updates",
        "        self._calls.answer(event.id, None)\n",
        "",
        ENDINGS,
    ),
    in_sql("two workers take one question", "C1", "take_questions", "WHERE questions.taken_by IS NULL", "WHERE 1"),
    in_sql(
        "anybody answers for an instance that is live elsewhere", "C1", "take_questions", "instances.owner IS NULL", "1"
    ),
    in_sql("a question is answered by one who has not taken it", "C1", "answer_question", "taken_by = ?2", "?2"),
    in_sql("what has not begun is asked", "G11", "take_questions", "instances.turn > 0", "1"),
    in_sql("a question goes before its time", "C1", "forget_questions", "expires_at_ms <= ?", "expires_at_ms <= 2 * ?"),
    in_sql(
        "an update that waits for the next execution is claimed again and again",
        "G4",
        "release_instance",
        "(inbox.name = '') <> EXISTS",
        "(inbox.name = '') OR EXISTS",
        ENDINGS,
    ),
)

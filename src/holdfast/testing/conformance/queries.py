"""Questions of those who do not have the code: taken by one worker, answered once, and gone in the end (C1, G11)."""

from holdfast.core.queries import MAX_QUESTIONS
from holdfast.core.updates import REJECTION_KEPT_MS, UpdateState
from holdfast.storage.members.instances import Release
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, QueryRow
from holdfast.storage.members.outcomes import ClaimedQueries, Rejected
from holdfast.storage.records import InstanceRecord
from holdfast.testing.conformance.bench import ANNA, BERT, FIRST_TIME_MS, Bench, Rules, applied, check, start, turn
from holdfast.testing.conformance.updates import answer as answered
from holdfast.testing.conformance.updates import inbox, state_of, update

LATER_MS = FIRST_TIME_MS + 10_000


def ask(record: InstanceRecord, question_id: str = "q") -> AskQuery:
    """A question that waits for ten seconds."""
    question = QueryRow(id=question_id, number=record.number, name="status", input=b"[]")
    return AskQuery(question=question, expires_at_ms=LATER_MS)


async def taken(bench: Bench, owner: str = ANNA, *workflows: str) -> list[str]:
    """What a worker gets."""
    take = ClaimQueries(owner=BERT if owner == BERT else ANNA, workflows=workflows or ("flow",), limit=10)
    outcome = await bench.one(take)
    return [question.id for question in outcome.questions] if isinstance(outcome, ClaimedQueries) else []


class QuestionRules(Rules):
    """Who answers, and how often."""

    def test_C1_the_owner_takes_questions_about_what_it_has_and_nobody_else_does(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(not (await bench.store.pending_queries()).has_questions)
            check(applied(await bench.one(ask(record))))
            check((await bench.store.pending_queries()).has_questions)
            check(await taken(bench, BERT) == [])
            check(await taken(bench) == ["q"])
            check(await taken(bench) == [], "a question is taken once")
            check(not (await bench.store.pending_queries()).has_questions)

        self.on_bench(case)

    def test_C1_any_worker_that_has_the_code_takes_what_nobody_owns(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(applied(await bench.one(ask(record))))
            check(await taken(bench, BERT, "other") == [])
            check(await taken(bench, BERT) == ["q"])

        self.on_bench(case)

    def test_G11_what_has_not_begun_is_not_asked(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            check(applied(await bench.one(ask(await bench.instance("a")))))
            check(await taken(bench, BERT) == [])

        self.on_bench(case)

    def test_C1_a_question_is_answered_once_by_the_one_who_took_it(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.one(ask(record))
            early = await bench.one(AnswerQuery(id="q", owner=ANNA, answer=b"0"))
            check(isinstance(early, Rejected), "nobody has taken it yet")
            check(await taken(bench) == ["q"])
            check(isinstance(await bench.one(AnswerQuery(id="q", owner=BERT, answer=b"1")), Rejected))
            check(await bench.store.read_query_reply("q") is None)
            check(applied(await bench.one(AnswerQuery(id="q", owner=ANNA, answer=b"2"))))
            check(isinstance(await bench.one(AnswerQuery(id="q", owner=ANNA, answer=b"3")), Rejected))
            check(await bench.store.read_query_reply("q") == b"2")
            check(applied(await bench.one(DeleteQueries(question="q"))))
            check(await bench.store.read_query_reply("q") is None)

        self.on_bench(case)

    def test_a_question_that_outlived_its_time_is_not_taken_and_goes(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.one(ask(record))
            check(not (await bench.store.pending_queries()).has_expired)
            check(applied(await bench.one(DeleteQueries())))
            check((await bench.store.pending_queries()).has_questions, "its time is not over")
            bench.clock.now_ms = LATER_MS
            bench.beat(ANNA)
            waiting = await bench.store.pending_queries()
            check(waiting.has_expired and not waiting.has_questions)
            check(await taken(bench) == [])
            check(applied(await bench.one(DeleteQueries())))
            check(not (await bench.store.pending_queries()).has_expired)

        self.on_bench(case)

    def test_rejections_of_updates_go_after_a_while_and_answers_stay(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            for name, state in (("no", UpdateState.REJECTED), ("yes", UpdateState.DONE)):
                await bench.one(update("a", name))
                rows = tuple(await inbox(bench, record))
                told = turn(await bench.instance("a"), consumed=rows, answers=answered(state, name))
                check(applied(await bench.one(told)))
            bench.clock.now_ms += REJECTION_KEPT_MS
            check((await bench.store.pending_queries()).has_expired)
            check(applied(await bench.one(DeleteQueries())))
            check(await state_of(bench, record, "no") is None)
            check(await state_of(bench, record, "yes") is UpdateState.DONE)
            check(not (await bench.store.pending_queries()).has_expired)

        self.on_bench(case)

    def test_questions_that_wait_are_bounded(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.commit(*(ask(record, f"{number}") for number in range(MAX_QUESTIONS)))
            check(isinstance(await bench.one(ask(record, "one more")), Rejected))

        self.on_bench(case)

"""Queries of other processes: claimed by one worker, answered once, deleted in the end (C1, G11)."""

from holdfast.core.queries import MAX_QUERIES
from holdfast.core.updates import REJECTION_KEPT_MS, UpdateState
from holdfast.storage.members.instances import Release
from holdfast.storage.members.messages import AnswerQuery, AskQuery, ClaimQueries, DeleteQueries, QueryRow
from holdfast.storage.members.outcomes import ClaimedQueries, Rejected
from holdfast.storage.records import InstanceRecord
from holdfast.testing.conformance.bench import ANNA, BERT, FIRST_TIME_MS, Bench, Rules, applied, check, start, turn
from holdfast.testing.conformance.updates import answer as answered
from holdfast.testing.conformance.updates import inbox, state_of, update

LATER_MS = FIRST_TIME_MS + 10_000


def ask(record: InstanceRecord, query_id: str = "q") -> AskQuery:
    """A query that expires in ten seconds."""
    query = QueryRow(id=query_id, number=record.number, name="status", input=b"[]")
    return AskQuery(query=query, expires_at_ms=LATER_MS)


async def claimed(bench: Bench, owner: str = ANNA, *workflows: str) -> list[str]:
    """What a worker gets."""
    take = ClaimQueries(owner=BERT if owner == BERT else ANNA, workflows=workflows or ("flow",), limit=10)
    outcome = await bench.one(take)
    return [query.id for query in outcome.queries] if isinstance(outcome, ClaimedQueries) else []


class QueryRules(Rules):
    """Who answers, and how often."""

    def test_C1_a_query_about_an_owned_instance_is_claimed_by_its_owner_only(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(not (await bench.store.pending_queries()).has_queries)
            check(applied(await bench.one(ask(record))))
            check((await bench.store.pending_queries()).has_queries)
            check(await claimed(bench, BERT) == [])
            check(await claimed(bench) == ["q"])
            check(await claimed(bench) == [], "a query is claimed once")
            check(not (await bench.store.pending_queries()).has_queries)

        self.on_bench(case)

    def test_C1_a_query_about_an_unowned_instance_is_claimed_by_any_worker_with_its_code(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(applied(await bench.one(ask(record))))
            check(await claimed(bench, BERT, "other") == [])
            check(await claimed(bench, BERT) == ["q"])

        self.on_bench(case)

    def test_G11_a_query_about_an_instance_without_a_turn_is_not_claimed(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            check(applied(await bench.one(ask(await bench.instance("a")))))
            check(await claimed(bench, BERT) == [])

        self.on_bench(case)

    def test_C1_a_query_is_answered_once_by_its_claimer(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.one(ask(record))
            early = await bench.one(AnswerQuery(id="q", owner=ANNA, answer=b"0"))
            check(isinstance(early, Rejected), "no worker has claimed it")
            check(await claimed(bench) == ["q"])
            check(isinstance(await bench.one(AnswerQuery(id="q", owner=BERT, answer=b"1")), Rejected))
            check(await bench.store.read_query_reply("q") is None)
            check(applied(await bench.one(AnswerQuery(id="q", owner=ANNA, answer=b"2"))))
            check(isinstance(await bench.one(AnswerQuery(id="q", owner=ANNA, answer=b"3")), Rejected))
            check(await bench.store.read_query_reply("q") == b"2")
            check(applied(await bench.one(DeleteQueries(query_id="q"))))
            check(await bench.store.read_query_reply("q") is None)

        self.on_bench(case)

    def test_an_expired_query_is_not_claimed_and_is_deleted(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.one(ask(record))
            check(not (await bench.store.pending_queries()).has_expired)
            check(applied(await bench.one(DeleteQueries())))
            check((await bench.store.pending_queries()).has_queries, "its time is not over")
            bench.clock.now_ms = LATER_MS
            bench.beat(ANNA)
            waiting = await bench.store.pending_queries()
            check(waiting.has_expired and not waiting.has_queries)
            check(await claimed(bench) == [])
            check(applied(await bench.one(DeleteQueries())))
            check(not (await bench.store.pending_queries()).has_expired)

        self.on_bench(case)

    def test_rejections_of_updates_expire_and_answers_stay(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            for name, state in (("no", UpdateState.REJECTED), ("yes", UpdateState.DONE)):
                await bench.one(update("a", name))
                rows = tuple(await inbox(bench, record))
                answering = turn(await bench.instance("a"), consumed=rows, answers=answered(state, name))
                check(applied(await bench.one(answering)))
            bench.clock.now_ms += REJECTION_KEPT_MS
            check((await bench.store.pending_queries()).has_expired)
            check(applied(await bench.one(DeleteQueries())))
            check(await state_of(bench, record, "no") is None)
            check(await state_of(bench, record, "yes") is UpdateState.DONE)
            check(not (await bench.store.pending_queries()).has_expired)

        self.on_bench(case)

    def test_the_number_of_waiting_queries_is_bounded(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await bench.commit(*(ask(record, f"{number}") for number in range(MAX_QUERIES)))
            check(isinstance(await bench.one(ask(record, "one more")), Rejected))

        self.on_bench(case)

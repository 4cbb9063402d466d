"""Queries that wait: for a turn on its way to disk (G11), and for a worker that has others to answer, too (C1)."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.held import HeldTurns, store_at
from tests.scenarios.support import engine_of, rows, together, until
from tests.support.inside import queries_of, worker_of

import holdfast as hf
from holdfast.core.queries import Reply
from holdfast.runtime import queries as questions
from holdfast.runtime.queries import LONGEST_SECONDS, POLL_SECONDS, Unanswered
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.members.messages import AskQuery, QueryRow
from holdfast.storage.records import InstanceNumber, InstanceRecord


def test_a_query_that_waits_long_for_a_turn_is_answered_once_and_not_if_its_asker_has_gone(tmp_path: Path) -> None:
    calls: list[str] = []

    @hf.workflow
    async def counted() -> None:
        @hf.on_query
        def which(name: str) -> str:
            calls.append(name)
            return name

        await hf.event("go")
        await hf.event("end")

    async def scenario() -> None:
        store = store_at(tmp_path / "shop.db")
        held = HeldTurns(store)
        async with engine_of(store, counted) as engine:
            handle = await engine.start(counted, id="it")
            raised = asyncio.create_task(handle.raise_event("go"))  # it is told with its turn
            await held.is_stuck.wait()
            patient = asyncio.create_task(handle.query("which", "patient"))
            with pytest.raises(TimeoutError):
                await handle.query("which", "hasty", timeout=3.5 * POLL_SECONDS)
            assert not patient.done()
            held.go_on.set()
            assert await patient == "patient"
            assert calls == ["patient"]
            assert await raised

    together(scenario())


class Waiting:
    """What a worker asks instead of its instances: the query "slow" has to wait for a turn until it may go on."""

    def __init__(self, worker: WorkerRuntime) -> None:
        self._ask = queries_of(worker).ask
        queries_of(worker).ask = self.ask  # type: ignore[method-assign]
        self.reason: Unanswered | None = Unanswered.NEEDS_TURN
        self.tries = 0

    async def ask(
        self, number: InstanceNumber, name: str, data: bytes, known: InstanceRecord | None = None
    ) -> Reply | Unanswered:
        self.tries += name == "slow"
        if name == "slow" and self.reason is not None:
            return self.reason
        return await self._ask(number, name, data, known)


@hf.workflow
async def answers_two() -> None:
    hf.on_query("slow")(lambda: "after a while")
    hf.on_query("fast")(lambda: "at once")
    await hf.event("end")


def test_C1_a_query_that_has_to_wait_does_not_delay_others_of_other_processes(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, answers_two) as engine, await hf.connect(path) as client:
            waiting = Waiting(worker_of(engine))
            await engine.start(answers_two, id="it")
            slow = asyncio.create_task(client.get("it").query("slow"))
            await until(lambda: waiting.tries)
            assert await client.get("it").query("fast", timeout=LONGEST_SECONDS / 2) == "at once"
            assert not slow.done()
            waiting.reason = None
            assert await slow == "after a while"

    together(scenario())


@pytest.mark.parametrize("reason", [Unanswered.NEEDS_TURN, Unanswered.OWNED_ELSEWHERE])
def test_C1_a_query_that_its_worker_gave_up_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: Unanswered
) -> None:
    monkeypatch.setattr(questions, "LONGEST_SECONDS", 0.02)
    taken: list[str] = []

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, answers_two) as engine, await hf.connect(path) as client:
            waiting = Waiting(worker_of(engine))
            waiting.reason = reason
            await engine.start(answers_two, id="it")
            slow = asyncio.create_task(client.get("it").query("slow", timeout=20))

            def is_asked_again() -> bool:
                taken.extend(found for (found,) in rows(path, "SELECT id FROM questions WHERE taken_by IS NOT NULL"))
                return len(set(taken)) > 1

            await until(is_asked_again)
            waiting.reason = None
            assert await slow == "after a while"

    together(scenario())


def test_C1_a_worker_takes_the_next_questions_at_once_after_a_full_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "BATCH", 2)
    monkeypatch.setattr(questions, "QUERY_POLL_SECONDS", 1_000.0)
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, answers_two) as engine:
            await engine.start(answers_two, id="it")
        async with await hf.connect(path) as client:
            for number in range(5):
                question = QueryRow(id=f"q{number}", number=InstanceNumber(1), name="fast", input=b"[]")
                await client._local.committer.commit(AskQuery(query=question, expires_at_ms=2**53))
        async with engine_of(path, answers_two):
            await until(lambda: rows(path, "SELECT count(*) FROM questions WHERE answer IS NULL") == [(0,)])

    together(scenario())


def test_C1_a_query_whose_instance_is_gone_gets_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, answers_two) as engine, await hf.connect(path) as client:
            waiting = Waiting(worker_of(engine))
            waiting.reason = Unanswered.GONE
            await engine.start(answers_two, id="it")
            with pytest.raises(hf.InstanceNotFound, match="'slow'"):
                await client.get("it").query("slow")

    together(scenario())


def test_W10_a_query_that_a_worker_took_before_it_stopped_is_answered_by_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with await hf.connect(path) as client:
            async with engine_of(path, answers_two) as engine:
                waiting = Waiting(worker_of(engine))
                await engine.start(answers_two, id="it")
                slow = asyncio.create_task(client.get("it").query("slow", timeout=20))
                await until(lambda: waiting.tries)
            async with engine_of(path, answers_two):
                assert await slow == "after a while"

    together(scenario())


@pytest.mark.parametrize("damage", [b'{"event":', b"[[]]"])
def test_C1_a_question_about_a_damaged_history_is_answered_and_costs_the_others_nothing(
    tmp_path: Path, damage: bytes
) -> None:
    @hf.workflow
    async def answers() -> None:
        hf.on_query("which")(lambda: hf.info().id)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, answers) as engine, await hf.connect(path) as client:
            for name in ("first", "second", "third"):
                await engine.run(answers, id=name)
            rows(path, "UPDATE history SET events = ? WHERE number = 1", damage)
            with pytest.raises(hf.StoreError, match="the history of 'first' is damaged"):
                await engine.get("first").query("which")
            asked = [client.get(name).query("which") for name in ("first", "second", "third")]
            first, *others = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(first, hf.StoreError)
            assert others == ["second", "third"]

    together(scenario())

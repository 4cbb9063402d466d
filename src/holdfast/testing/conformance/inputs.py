"""Large inputs: the rows of instances and attempts carry a reference, and whoever runs an attempt gets the data."""

from hashlib import sha256

import msgspec

from holdfast.core.events import ActivityCompleted, Payload, Started, decode_event, encode_events
from holdfast.core.gates import IdPolicy
from holdfast.core.lifecycle import AttemptEvent
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.contract import (
    AttemptRecord,
    ClaimAttempts,
    ClaimedAttempts,
    LargePayload,
    MarkWorkerLost,
    OpenNextAttempt,
    Rejected,
    Start,
    StartedInstance,
)
from holdfast.storage.endings import transition
from holdfast.storage.large import marked, offload
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, Rules, applied, check, new_attempt, start, turn

SMALL = b'"' + b"s" * (INLINE_LIMIT_BYTES - 2) + b'"'
LARGE = b'"' + b"l" * INLINE_LIMIT_BYTES + b'"'
REFERENCE = sha256(LARGE).hexdigest()


def large_start(instance_id: str, given: bytes = LARGE, policy: IdPolicy = IdPolicy.IDEMPOTENT) -> Start:
    """As a client makes it: the event's payload is in the side table, too."""
    payloads: list[LargePayload] = []
    begun = Started(time_ms=0, workflow="flow", version="", seed=1, input=Payload(msgspec.Raw(given)))
    event = msgspec.json.encode(offload(begun, payloads))
    made = start(instance_id, given=given, policy=policy)
    return msgspec.structs.replace(made, started=event, payloads=tuple(payloads))


async def claim(bench: Bench) -> list[AttemptRecord]:
    outcome = await bench.one(ClaimAttempts(owner=BERT, queues=("default",), names=("step",), limit=9))
    check(isinstance(outcome, ClaimedAttempts))
    return outcome.attempts  # type: ignore[union-attr]  # checked above


class InputRules(Rules):
    """What is above the inline limit is stored once for each instance, however many rows name it."""

    def test_a_large_input_of_an_instance_is_stored_once_and_named_by_its_row(self) -> None:
        async def case(bench: Bench) -> None:
            check(isinstance(await bench.one(large_start("a")), StartedInstance))
            check(isinstance(await bench.one(start("b", given=SMALL)), StartedInstance))
            record = await bench.instance("a")
            check(record.input == marked(REFERENCE))
            check(await bench.store.read_payloads(record.number) == {REFERENCE: LARGE})
            check(isinstance(await bench.one(start("c", given=LARGE)), StartedInstance))
            whole = await bench.instance("c")
            check(await bench.store.read_payloads(whole.number, [REFERENCE, "?"]) == {REFERENCE: LARGE})
            check((await bench.instance("b")).input == SMALL, "what is not above the limit stays in the row")
            loaded = await bench.store.load(record.number, 1)
            begun = decode_event(loaded.inbox[0].event)
            check(isinstance(begun, Started) and loaded.payloads[begun.input.reference] == LARGE)

        self.on_bench(case)

    def test_G3_large_inputs_are_compared_by_their_hash(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(large_start("a"))
            same = await bench.one(large_start("a"))
            check(isinstance(same, StartedInstance) and not same.created)
            check(isinstance(await bench.one(large_start("a", LARGE.replace(b"l", b"m"))), Rejected))
            again = await bench.one(large_start("a", policy=IdPolicy.TERMINATE_EXISTING))
            check(isinstance(again, StartedInstance) and again.created)
            newest = await bench.instance("a")
            check(await bench.store.read_payloads(newest.number) == {REFERENCE: LARGE}, "each instance has its own")

        self.on_bench(case)

    def test_whoever_claims_an_attempt_gets_its_large_input(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            attempts = (new_attempt(0, input=LARGE), new_attempt(1, input=SMALL), new_attempt(2, input=LARGE))
            check(applied(await bench.one(turn(record, attempts=attempts))))
            stored = await bench.store.read_attempts(record.number, 1)
            check([attempt.input for attempt in stored] == [marked(REFERENCE), SMALL, marked(REFERENCE)])
            check(await bench.store.read_payloads(record.number) == {REFERENCE: LARGE})
            check([attempt.input for attempt in await claim(bench)] == [LARGE, SMALL, LARGE])
            check((await bench.store.load(record.number, 1)).payloads == {}, "no event names it")

        self.on_bench(case)

    def test_G13_the_next_attempt_has_the_large_input_too(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, attempts=(new_attempt(0, input=LARGE),)))))
            (first,) = await claim(bench)
            for given in (first.input, marked(REFERENCE)):  # as its runner has it, and as a janitor reads it
                number = first.key.attempt + 1
                ended = transition(first, AttemptEvent.FAIL, failure=b"{}")
                again = OpenNextAttempt(ended=ended, next=new_attempt(0, attempt=number, input=given))
                check(applied(await bench.one(again)))
                (first,) = await claim(bench)
                check((first.key.attempt, first.input) == (number, LARGE))
            check(len(await bench.store.read_payloads(record.number)) == 1)

        self.on_bench(case)

    def test_W6_an_attempt_that_moves_on_from_a_lost_worker_has_its_large_input(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            running = new_attempt(0, owner=ANNA, input=LARGE)
            check(applied(await bench.one(turn(record, attempts=(running,)))))
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=9))))
            (second,) = await claim(bench)
            check((second.key.attempt, second.input) == (2, LARGE))

        self.on_bench(case)

    def test_large_bytes_are_read_as_the_json_that_was_given(self) -> None:
        async def case(bench: Bench) -> None:
            raw = bytes(range(256)) * 100
            given = msgspec.json.encode(raw)
            answer = ActivityCompleted(time_ms=0, activity=0, result=Payload(msgspec.Raw(given)))
            payloads: list[LargePayload] = []
            named = offload(answer, payloads)
            check([payload.data for payload in payloads] == [raw], "the bytes are stored, and not their base64")
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, payloads=tuple(payloads), events=encode_events([named])))))
            reference = named.result.reference
            check(await bench.store.read_payloads(record.number) == {reference: given})
            check(await bench.store.read_payloads(record.number, [reference]) == {reference: given})
            check((await bench.store.load(record.number, 1)).payloads == {reference: given})

        self.on_bench(case)

"""Right and wrong uses of the public API, for type checkers only. Nobody runs this.

Every wrong line carries an ignore. mypy and pyright (strict, as in `make types`) complain about an ignore that is not
needed, and `test_typing.py` checks that pyright complains about exactly the marked lines when ignores do not count.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar, assert_type
from uuid import UUID

import holdfast as hf
from holdfast.testing import ActivityRun, run_activity


@dataclass
class Order:
    card: str
    cents: int


@hf.activity
async def charge(card: str, cents: int = 1) -> str:
    return f"{card} {cents}"


@hf.activity(queue="slow", retry=hf.Retry(attempts=3, initial=timedelta(seconds=1)), start_to_close=30)
def count(text: str) -> int:
    return len(text)


@hf.activity
async def write_story(topic: str) -> AsyncIterator[str]:
    yield topic


@hf.activity(resumable=True)
def count_up(count: int) -> Iterator[int]:
    yield from range(count)


class Mail:
    @hf.activity
    async def send(self, to: str, copies: int = 1) -> str:
        return to * copies

    @hf.activity(queue="slow")
    def count(self) -> int:
        return 1

    @hf.activity
    async def parts(self, upto: int) -> AsyncIterator[str]:
        yield "x" * upto

    @staticmethod
    @hf.activity
    async def double(number: int) -> int:
        return 2 * number


@hf.workflow
async def campaign(mail: Mail) -> None:
    assert_type(await Mail.send("a", copies=2), str)
    assert_type(await mail.send("a"), str)
    assert_type(await Mail.count(), int)
    assert_type(await mail.count(), int)
    assert_type(await Mail.double(1), int)
    async for part in Mail.parts(2):
        assert_type(part, str)
    await Mail.send(1)  # type: ignore[arg-type]
    await mail.send("a", copies="b")  # type: ignore[arg-type]
    await Mail.count(1)  # type: ignore[call-arg]
    assert_type(hf.context(Mail), Mail)
    assert_type(hf.context(), Any)


async def alone() -> None:
    assert_type(await run_activity(charge, "a", 2, cancel_after=3), ActivityRun[str])
    assert_type((await run_activity(write_story, "a")).result, list[str])
    assert_type((await run_activity(Mail().send, "a", heartbeat_details=3)).heartbeats, tuple[Any, ...])
    assert_type(await run_activity(count, "a"), ActivityRun[int])
    await run_activity(charge, 1)  # type: ignore[arg-type]


@asynccontextmanager
async def make_mail() -> AsyncGenerator[Mail]:
    yield Mail()


def registering(client: hf.Client) -> None:
    hf.Engine("shop.db", activities=[Mail(), Mail().send, charge], context=make_mail)
    hf.Worker(client, activities=[Mail()], context=make_mail)
    hf.Worker(client, activities=[Mail()], context=7)  # type: ignore[arg-type]


@hf.workflow
async def read_story() -> None:
    async for part in write_story("x"):
        assert_type(part, str)
    async for number in count_up(count=3):
        assert_type(number, int)
    write_story(1)  # type: ignore[arg-type]
    await write_story("x")  # type: ignore[misc]


@hf.workflow
async def checkout(order: Order, gift: bool = False) -> str:
    ticket = await charge(order.card, cents=order.cents)
    assert_type(ticket, str)
    assert_type(await count(ticket), int)
    async with asyncio.timeout(3):
        await charge(order.card, "many")  # type: ignore[arg-type]
    await charge()  # type: ignore[call-arg]
    await charge("a", dollars=1)  # type: ignore[call-arg]
    number: int = await charge("a")  # type: ignore[assignment]
    return f"{ticket} {number} {gift}"


@hf.workflow
async def together(order: Order) -> None:
    assert_type(await asyncio.gather(charge(order.card), count("x")), tuple[str, int])
    assert_type(await asyncio.gather(count("x"), checkout(order), nothing()), tuple[int, str, None])
    assert_type(await asyncio.gather(*(charge(card) for card in "abc")), list[str])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(charge("a")), asyncio.Task[str])
    await asyncio.gather(charge(7), count("x"))  # type: ignore[arg-type]


charge_once = charge.with_options(retry=hf.Retry(attempts=1), on_cancel="wait")


@hf.workflow
async def with_options(order: Order) -> None:
    assert_type(await charge_once(order.card, cents=3), str)
    assert_type(await count.with_options(queue="gpu", process=True)("x"), int)
    async for part in write_story.with_options(start_to_close=timedelta(minutes=1))("x"):
        assert_type(part, str)
    assert_type(await checkout.with_options(id="c-1", policy="reuse")(order), str)
    handle = await hf.start(checkout, order, id="c-2", policy="terminate_existing", deadline=3)
    assert_type(await handle, str)
    await hf.raise_event("c-3", "word", 1)
    await hf.cancel("c-3", "not needed")
    await handle.raise_event("word")
    charge.with_options(que="gpu")  # type: ignore[call-arg]
    charge.with_options(retry=3)  # type: ignore[arg-type]
    charge.with_options(on_cancel="wait for it")  # type: ignore[arg-type]
    checkout.with_options(policy="replace")  # type: ignore[arg-type]
    await charge_once(7)  # type: ignore[arg-type]
    await hf.start(checkout, order, parent="x")  # type: ignore[call-overload]


P = ParamSpec("P")
R = TypeVar("R")


async def retried(activity: hf.Activity[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return await activity(*args, **kwargs)


async def as_child(workflow: hf.Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    handle = await hf.start(workflow.bind(*args, **kwargs))
    assert_type(handle, hf.ChildHandle[R])
    return await workflow(*args, **kwargs)


async def at_once(engine: hf.Engine, workflow: hf.Workflow[[Order], R], order: Order) -> R:
    return await engine.run(workflow, order)


def registers_one(definition: hf.Workflow[..., Any] | hf.Activity[..., Any]) -> None:
    if isinstance(definition, hf.Workflow):
        hf.Engine("shop.db", workflows=[definition])
    else:
        hf.Engine("shop.db", activities=[definition])


@hf.workflow
async def by_helpers(order: Order) -> None:
    assert_type(await retried(charge, order.card, cents=3), str)
    assert_type(await asyncio.gather(retried(charge, "a"), retried(count, text="b")), tuple[str, int])
    assert_type(await as_child(checkout, order, gift=True), str)
    await retried(charge, 7)  # type: ignore[arg-type]
    await retried(charge, "a", dollars=1)  # type: ignore[call-arg]
    await retried(checkout, order)  # type: ignore[arg-type]
    await as_child(checkout, "no order")  # type: ignore[arg-type]
    await as_child(charge, "a")  # type: ignore[arg-type]
    number: int = await retried(charge, "a")  # type: ignore[arg-type]
    del number


def registers() -> None:
    annotated: list[hf.Activity[..., Any]] = [charge, count, write_story, count_up]
    hf.Engine("shop.db", activities=annotated)
    hf.Engine("shop.db", workflows=annotated)  # type: ignore[arg-type]
    activities = [charge, count, write_story, count_up]
    workflows = [checkout, nothing, together]
    hf.Engine("shop.db", activities=activities, workflows=workflows)
    hf.Engine("shop.db", workflows=activities)  # type: ignore[arg-type]
    hf.Engine(
        "shop.db", activities=[charge, checkout]
    )  # an object may have methods that are activities: seen at run time


@hf.workflow(name="nothing", version="2", deadline=timedelta(days=1), deadline_grace=60)
async def nothing() -> None:
    assert_type(hf.side_effect(lambda: 7), int)
    assert_type(hf.random().random(), float)
    hf.log.info("a line of %s", hf.info().id)
    hf.log.exception("a line of %s", hf.info().id, extra={"order": 7})


size = hf.Query[int]("size")
grow = hf.Update[int]("grow")


@hf.workflow
async def answers() -> None:
    @hf.on_query
    def status(name: str) -> str:
        return name

    assert_type(status("x"), str)

    @hf.on_query("other")
    def by_name() -> int:
        return 1

    assert_type(by_name(), int)

    @hf.on_query(size)
    def as_typed() -> int:
        return 1

    @hf.on_query(size)  # type: ignore[arg-type]
    def of_another_type() -> str:
        return ""

    @hf.on_update
    async def add(number: int) -> str:
        return str(number)

    assert_type(await add(1), str)

    @add.validator
    def check(number: int) -> None: ...

    @add.validator  # type: ignore[arg-type]
    def check_another(name: str) -> None: ...

    @hf.on_update("other")
    def change() -> int:
        return 1

    assert_type(change(), int)

    @hf.on_update(grow)
    async def later() -> int:
        return 1

    @hf.on_update(grow)
    def at_once() -> int:
        return 1

    @hf.on_update(grow)  # type: ignore[arg-type]
    def grow_by_text() -> str:
        return ""

    assert_type(hf.all_handlers_finished(), bool)
    assert_type(hf.update_info().id, str)
    del as_typed, of_another_type, check, check_another, later, at_once, grow_by_text


async def asking(handle: hf.Handle[None]) -> None:
    assert_type(await handle.query("status", "x"), Any)
    assert_type(await handle.query("status", "x", returns=str, timeout=3), str)
    assert_type(await handle.query(size), int)
    assert_type(await handle.update("add", 1), Any)
    assert_type(await handle.update("add", 1, id="once", returns=str, timeout=3), str)
    assert_type(await handle.update(grow, id="once"), int)
    await handle.update("add", id=7)  # type: ignore[call-overload]
    assert_type(await handle.start_update(grow, 1, id="once"), hf.UpdateHandle[int])
    assert_type(await handle.start_update("add", 1, returns=str, timeout=3), hf.UpdateHandle[str])
    assert_type(await handle.start_update("add", 1), hf.UpdateHandle[Any])
    assert_type(await (await handle.start_update(grow)).result(timeout=3), int)
    await handle.start_update(7)  # type: ignore[call-overload]
    async for change in handle.watch():
        assert_type(change, hf.Change)
        change.turn = 1  # type: ignore[misc]
    await handle.query(7)  # type: ignore[call-overload]
    await handle.query("status", timeout="long")  # type: ignore[call-overload]


@hf.workflow
async def family(order: Order) -> None:
    assert_type(await checkout(order, gift=True), str)
    assert_type(await nothing(), None)
    handle = await hf.start(checkout, order, True, id="b", parent_close="cancel")
    assert_type(handle, hf.ChildHandle[str])
    assert_type(await handle, str)
    assert_type(await handle.result(), str)
    assert_type(await hf.start(checkout.bind(order=order), detached=True), hf.ChildHandle[str])
    assert_type(await hf.start("by-name", 1, "two"), hf.ChildHandle[Any])
    handle.raise_event("approval", 7)
    handle.cancel("not wanted")
    await checkout("no order")  # type: ignore[arg-type]
    await hf.start(nothing, 1)  # type: ignore[arg-type]
    await hf.start(checkout, order, True, parent_close="kill")  # type: ignore[call-arg, call-overload]
    handle.cancel(7)  # type: ignore[arg-type]


async def outside(engine: hf.Engine, client: hf.Client) -> None:
    order = Order("1234", 300)
    assert_type(await engine.run(checkout, order, True, id="a"), str)
    assert_type(await engine.run(checkout, order), str)
    assert_type(await engine.run(nothing), None)
    assert_type(await engine.run("by-name", 1, "two", id="a"), Any)
    assert_type(await engine.run(checkout, order, deadline=3), str)
    assert_type(await engine.run(nothing.bind(), deadline=None), None)
    await client.start("by-name", 1, deadline=timedelta(days=1))
    await client.start(checkout, order, deadline="soon")  # type: ignore[call-overload]
    handle = await client.start(checkout, order, False, id="a")
    assert_type(handle, hf.Handle[str])
    assert_type(await handle.result(timeout=1), str)
    assert_type(await handle.result(timeout=timedelta(seconds=1)), str)
    await handle.terminate("not wanted")
    await handle.terminate(7)  # type: ignore[arg-type]
    assert_type(await client.start(checkout.bind(order=order), id="a", policy="reuse"), hf.Handle[str])
    assert_type(await client.start(checkout, order, id="a", policy="terminate_existing"), hf.Handle[str])
    assert_type(await engine.run(checkout, order, id="a", policy="reuse"), str)
    await client.start("by-name", id="a", policy="replace")  # type: ignore[call-overload]
    await client.start(checkout, order, id="a", policy=7)  # type: ignore[call-overload]
    assert_type(client.get("a"), hf.Handle[Any])
    assert_type(client.get_update("a", "b"), hf.UpdateHandle[Any])
    assert_type(client.get_update("a", "b", returns=int), hf.UpdateHandle[int])
    client.get_update("a")  # type: ignore[call-overload]
    assert_type(await client.start(checkout, order, id="a", update=("add", (1,))), hf.Handle[str])
    await client.start(checkout, order, id="a", update="add")  # type: ignore[call-overload]
    assert_type(await charge.fn("a"), Any)
    wrong: int = await engine.run(checkout, order, True)  # type: ignore[arg-type, call-arg]
    await engine.run(checkout, "no order", True)  # type: ignore[arg-type, call-arg]
    await engine.run(nothing, 1)  # type: ignore[arg-type]
    checkout.bind(order="no order")  # type: ignore[arg-type]
    checkout.bind(order, present=True)  # type: ignore[call-arg]
    await handle.result("soon")  # type: ignore[arg-type]
    await client.start(checkout.bind(order), order)  # type: ignore[call-overload]
    hf.Retry(attempts="many")  # type: ignore[arg-type]
    hf.Engine("shop.db", workflows=[charge])  # type: ignore[list-item]
    del wrong


async def releases(handle: hf.Handle[int]) -> None:
    await handle.release("review")
    await handle.release("review", output={"text": "final"}, id="r-1", timeout=timedelta(seconds=5))
    await handle.release()  # type: ignore[call-arg]
    await handle.release("review", {"text": "final"})  # type: ignore[call-arg]
    flow = hf.Flow("f")
    start = flow.trigger("start")
    quotes = flow.run("quotes", "quotes", after=start, hold=True)
    flow.run("price", "price", each=quotes.responses, after=quotes, hold={"timeout": "1d"})
    flow.event_policy("drop_unsubscribed")
    flow.event_policy("drop")  # type: ignore[arg-type]
    flow.run("other", "price", after=quotes, hold="soon")  # type: ignore[arg-type]


async def in_tests(env: hf.testing.Environment) -> None:
    assert_type(await env.run(checkout, Order("1234", 300)), str)
    assert_type((await env.start(nothing)), hf.Handle[None])
    env.replace(charge, with_=charge.fn)
    env.replace(charge, with_=ValueError("no"))
    assert_type(env.calls(charge), list[dict[str, Any]])
    await env.skip(timedelta(days=1), hours=2)
    assert_type(await env.crash_at_every_commit(nothing), hf.testing.CrashReport)
    await env.skip(days="many")  # type: ignore[arg-type]
    env.replace(checkout, with_=ValueError("no"))
    env.replace("checkout", with_=ValueError("no"))  # type: ignore[arg-type]
    hf.testing.Environment(workflows=[checkout], activities=[charge], replace={charge: charge.fn, checkout: KeyError()})
    hf.testing.Environment(workflows=[checkout], replace={checkout: KeyError()})
    hf.testing.Replayer(workflows=[charge])  # type: ignore[list-item]


@dataclass
class Approval:
    ok: bool


approval = hf.Event[Approval]("approval")
either = hf.Event[Approval | int]("either")


@hf.workflow(event_policy="drop_unsubscribed", mailbox_limit=10, continue_after=100)
async def listens(name: str) -> None:
    assert_type(await hf.event("approval", Approval), Approval)
    assert_type(await hf.event("anything"), Any)
    assert_type(await approval, Approval)
    assert_type(await either, Approval | int)
    async for given in hf.events("approval", Approval):
        assert_type(given, Approval)
    async for given in approval:
        assert_type(given, Approval)
    hf.raise_event("other", approval, Approval(ok=True))
    hf.raise_event("other", "anything", 7)
    hf.raise_event("other", approval, 7)  # type: ignore[misc]
    hf.raise_event("other")  # type: ignore[call-overload]
    await hf.event(7)  # type: ignore[call-overload]
    text: str = await hf.event("number", int)  # type: ignore[assignment]
    texts: list[str] = await hf.event("numbers", list[int])  # type: ignore[assignment]
    each: AsyncIterator[str] = hf.events("number", int)  # type: ignore[assignment]
    kept: str = hf.state.get("number", int)  # type: ignore[assignment]
    number: int | str = await hf.event("number", int | str)
    del text, texts, each, kept, number
    await hf.wait_until(lambda: name == "x", timeout=timedelta(days=1))
    await hf.wait_until(name == "x")  # type: ignore[arg-type]
    hf.set_status({"at": 1})
    hf.state["approvals"] = [1]
    assert_type(hf.state.get("approvals", list[int]), list[int] | None)
    assert_type(hf.state.get("approvals", list[int], []), list[int])
    hf.state[7] = 1  # type: ignore[index]
    assert_type(hf.now(), datetime)
    assert_type(hf.uuid4(), UUID)
    assert_type(hf.info(), hf.WorkflowInfo)
    assert_type(hf.info().should_continue, bool)
    hf.side_effect(7)  # type: ignore[arg-type]
    hf.log.fatal("no such level")  # type: ignore[attr-defined]
    hf.continue_as_new(name)


@hf.activity(heartbeat=10, schedule_to_close=timedelta(hours=1), max_losses=3, rerun_after_loss=False, process=True)
def beats() -> str:
    hf.heartbeat({"row": 1})
    assert_type(hf.activity_info().attempt, int)
    assert_type(hf.activity_info().details, Any)
    return hf.idempotency_key()


async def looks(client: hf.Client, handle: hf.Handle[str]) -> None:
    assert_type(await hf.connect("shop.db", workflows=[listens]), hf.Client)
    described = await handle.describe()
    status: str = described.state
    assert_type(described.attempts[0].ledger, int)
    assert_type(described.waiting_for, list[str])
    assert_type([entry.kind for entry in await handle.history(execution=1)], list[str])
    assert_type(await handle.raise_event(approval, Approval(ok=True), id="once"), bool)
    assert_type(await handle.raise_event("approval"), bool)
    assert_type(await handle.state(), dict[str, Any])
    await handle.cancel("not wanted")
    await client.start(listens, "a", event=("approval", Approval(ok=True)))
    await client.start(listens, "a", event=(approval, Approval(ok=True)))
    running: list[str] = [record.id for record in await client.list("state = RUNNING", limit=10)]
    hf.Retry(
        attempts=None, initial=0.5, backoff=3, maximum=timedelta(minutes=1), jitter=False, non_retryable=(KeyError,)
    )
    await handle.raise_event(approval, 7)  # type: ignore[misc]
    await handle.raise_event(7)  # type: ignore[call-overload]
    await client.start(listens, "a", event="approval")  # type: ignore[call-overload]
    await client.start(listens, "a", id=7)  # type: ignore[call-overload]
    await client.list(limit="ten")  # type: ignore[arg-type]
    client.get(7)  # type: ignore[arg-type]
    await handle.history(execution="first")  # type: ignore[arg-type]
    hf.Retry(non_retryable=(7,))  # type: ignore[arg-type]
    hf.Engine(7)  # type: ignore[arg-type]
    hf.Engine("shop.db", modules=["shop"])  # type: ignore[list-item]
    hf.Engine("shop.db", cache_size="small")  # type: ignore[arg-type]
    hf.Engine("shop.db", payload_limit="32 MB")  # type: ignore[arg-type]
    hf.Worker(client, workflows=[listens], payload_limit=2**26)
    hf.activity(start_to_close="soon")  # type: ignore[call-overload]
    hf.activity(retry=3)  # type: ignore[call-overload]
    hf.workflow(version=2)  # type: ignore[call-overload]
    hf.workflow(event_policy="forget")  # type: ignore[call-overload]
    del running, status


async def works(client: hf.Client) -> None:
    worker = hf.Worker(
        client, workflows=[listens], activities=[charge, count], queues=["default", "slow"], max_activities=10, lease=10
    )
    assert_type(await worker.run(), None)
    async with hf.Worker(client, activities=[charge], lease=timedelta(seconds=5)) as running:
        assert_type(running, hf.Worker)
        assert_type(running.key, str | None)
        assert_type(running.running, int)
        running.drain(timeout=timedelta(seconds=30))
        running.drain("soon")  # type: ignore[arg-type]
        running.stop()
    (described,) = await client.workers()
    assert_type(described.lease_left, float)
    assert_type(described.queues, list[str])
    assert_type([queue.ready for queue in await client.queues()], list[int])
    hf.Worker("shop.db", workflows=[listens])  # type: ignore[arg-type]
    hf.Worker(client, modules=["shop"])  # type: ignore[list-item]
    hf.Worker(client, workflows=[charge])  # type: ignore[list-item]
    hf.Worker(client, workflows=[listens], max_activities="many")  # type: ignore[arg-type]


def builds() -> None:
    flow = hf.Flow("order", version="2")
    start = flow.trigger("start", input={"cents": "integer"})
    paid = flow.run(
        "paid", charge, after=start, input={"card": start.input.card}, retry={"attempts": 3, "initial": "1s"}
    )
    flow.run("told", "shop.tell", after=[paid, paid.failed(ValueError, "Declined")], when=paid.output.cents > 3)
    flow.wait("dinner", event="dinner", timeout=timedelta(hours=1), after="told")
    flow.child("checkout", checkout, after=paid.otherwise(), each=start.input.items, limit=2)
    flow.output({"paid": paid.output})
    assert_type(flow.hash, str)
    assert_type(hf.Flow.load("order.yaml", activities=[charge]), hf.Flow)
    flow.run("a", checkout, after=start)  # type: ignore[arg-type]
    flow.run("b", charge)  # type: ignore[call-arg]
    flow.run("c", charge, after=3)  # type: ignore[arg-type]
    flow.run("d", charge, after=start, retry={"atempts": 3})  # type: ignore[arg-type]
    flow.child("e", charge, after=start)  # type: ignore[arg-type]
    flow.wait("f", after=start, timeout=[1])  # type: ignore[arg-type]


@hf.workflow  # type: ignore[arg-type]
def not_async(order: Order) -> str:
    return order.card

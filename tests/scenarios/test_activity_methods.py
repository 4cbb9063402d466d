"""Activities that are methods of registered objects (A11)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.errors import DuplicateName, InvalidOption, UsageError
from holdfast.testing import Environment


class Server:
    def __init__(self, host: str) -> None:
        self.host = host
        self.sent: list[str] = []


class Mail:
    """The object of the samples."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @hf.activity
    async def send(self, to: str, subject: str = "hello") -> str:
        self.server.sent.append(f"{to} {subject}")
        return f"{self.server.host}: {subject} to {to}"

    @hf.activity(name="mail.count", queue="default", retry=hf.Retry(attempts=2, initial=0.001))
    def count(self) -> int:
        return len(self.server.sent)

    @hf.activity
    async def parts(self, upto: int) -> AsyncIterator[str]:
        for number in range(upto):
            yield f"{self.server.host} {number}"

    @hf.activity
    def lines(self, upto: int) -> Iterator[int]:
        yield from range(upto)

    async def connect(self, to: str) -> str:
        return f"{self.server.host} for {to}"

    @hf.activity(prepare=connect)
    async def prepared(self, to: str) -> str:
        return f"{hf.activity_info().prepared} {to}"

    def not_marked(self) -> None: ...


def plain(to: str) -> str:
    return f"plain {to}"


class LoudMail(Mail):
    @hf.activity
    async def send(  # pyright: ignore[reportIncompatibleVariableOverride]  # its object is of a derived class
        self, to: str, subject: str = "HELLO"
    ) -> str:
        return f"loud {subject} to {to}"

    @hf.activity(prepare=plain)
    def from_function(self, to: str) -> str:
        return f"{hf.activity_info().prepared}, {to}"


mail = Mail(Server("module"))


@hf.workflow
async def campaign(to: str) -> list[Any]:
    sent = [await Mail.send(to, subject="a"), await mail.send(to)]
    streamed = [part async for part in Mail.parts(2)] + [str(each) async for each in mail.lines(2)]
    return [*sent, await Mail.count(), *streamed, await Mail.prepared("x")]


@hf.workflow
async def loud(to: str) -> list[str]:
    return [await LoudMail.send(to), await LoudMail.from_function(to)]


def test_A11_methods_of_an_object_run_on_the_object_that_the_worker_registered(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        server = Server("worker")
        async with hf.Engine(path, workflows=[campaign], activities=[Mail(server)]) as engine:
            assert await engine.run(campaign, "ann") == [
                "worker: a to ann",
                "worker: hello to ann",
                2,
                "worker 0",
                "worker 1",
                "0",
                "1",
                "worker for x x",
            ]
        assert server.sent == ["ann a", "ann hello"]
        assert mail.server.sent == []
        names = [name for (name,) in rows(path, "SELECT name FROM attempts ORDER BY activity")]
        assert names == ["send", "send", "parts", "lines", "mail.count", "prepared"]
        check_tables(path)
        assert audit(path) == []

    together(scenario())


def test_A11_one_bound_method_registers_one_activity(tmp_path: Path) -> None:
    @hf.workflow
    async def only() -> str:
        return await Mail.send("bob")

    async def scenario() -> None:
        one = Mail(Server("one"))
        async with hf.Engine(tmp_path / "shop.db", workflows=[only], activities=[one.send, one.send]) as engine:
            assert await engine.run(only) == "one: hello to bob"
            assert list(engine._registry.activities) == ["send"]  # pyright: ignore[reportPrivateUsage]

    together(scenario())


def test_A11_a_marked_method_of_a_derived_class_replaces_that_of_its_base(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hf.Engine(tmp_path / "shop.db", workflows=[loud], activities=[LoudMail(Server("here"))]) as engine:
            assert await engine.run(loud, "ann") == ["loud HELLO to ann", "plain ann, ann"]

    together(scenario())


def test_A11_outside_of_workflows_a_method_runs_on_its_object() -> None:
    async def scenario() -> None:
        here = Mail(Server("here"))
        assert await here.send("ann") == "here: hello to ann"
        assert await here.count() == 1
        assert [part async for part in here.parts(1)] == ["here 0"]
        assert await here.prepared("x") == "here for x x"
        with pytest.raises(UsageError, match=r"Mail.send is a method: outside of workflows call it on an object"):
            await Mail.send("ann")
        with pytest.raises(UsageError, match=r"Mail.parts is a method"):
            Mail.parts(1)

    together(scenario())


def test_A11_a_module_registers_the_objects_that_it_names(tmp_path: Path) -> None:
    import sys  # noqa: PLC0415

    async def scenario() -> None:
        async with hf.Engine(tmp_path / "shop.db", modules=[sys.modules[__name__]]) as engine:
            assert (await engine.run(campaign, "ann"))[0] == "module: a to ann"
        mail.server.sent.clear()

    together(scenario())


def test_A11_what_cannot_be_registered_is_refused_with_what_to_write() -> None:
    one, other = Mail(Server("one")), Mail(Server("other"))

    class Overrides(Mail):
        async def send(self, to: str, subject: str = "") -> str:  # type: ignore[override]
            return to + subject

    class Unmarked:
        def send(self) -> None: ...

    cases: list[tuple[list[Any], type[Exception], str]] = [
        ([one, other], DuplicateName, "two of the name 'mail.count': of an object of Mail and of an object of Mail"),
        ([one, other.send], DuplicateName, "'send'.*give one of them another name"),
        ([Mail.send], UsageError, r"Mail.send is a method without an object; register an object, activities=\[Mail"),
        ([Mail], UsageError, r"Mail is a class; register an object of it: activities=\[Mail\(...\)\]"),
        ([Overrides(Server("x"))], UsageError, r"Overrides.send overrides an activity and is none; mark it"),
        ([Unmarked()], UsageError, "Unmarked has no method that is marked with @hf.activity"),
        ([one.not_marked], UsageError, r"not_marked is a method of an object; mark it in its class with @hf.activity"),
    ]
    for activities, kind, message in cases:
        with pytest.raises(kind, match=message):
            hf.Engine(":memory:", activities=activities)


def test_A11_a_method_that_no_object_can_run_is_refused_where_it_is_marked() -> None:
    with pytest.raises(InvalidOption, match=r"Bad.heavy: process=True is for functions, and this is a method"):

        class Bad:  # pyright: ignore[reportUnusedClass]
            @hf.activity(process=True)
            def heavy(self) -> int:
                return 1

    with pytest.raises(InvalidOption, match=r"Worse.far: external=True is for functions.*an executor has no object"):

        class Worse:  # pyright: ignore[reportUnusedClass]
            @hf.activity(external=True, start_to_close=1)
            async def far(self) -> int:
                raise NotImplementedError

    with pytest.raises(InvalidOption, match=r"Worst.make is a method"):

        class Worst:  # pyright: ignore[reportUnusedClass]
            @classmethod
            @hf.activity
            async def make(cls) -> int:
                return 1

    with pytest.raises(InvalidOption, match=r"prepare= is called with the arguments of the activity"):

        class Unfit:  # pyright: ignore[reportUnusedClass]
            def ready(self, other: str) -> None: ...

            @hf.activity(prepare=ready)
            async def go(self, to: str) -> None: ...


def test_A11_an_environment_replaces_and_counts_methods() -> None:
    async def scenario() -> None:
        here = Mail(Server("here"))

        async def fake(to: str, subject: str = "") -> str:
            return f"fake {to}{subject}"

        async with Environment(workflows=[campaign], activities=[here], replace={Mail.send: fake}) as env:
            assert (await env.run(campaign, "ann"))[:2] == ["fake anna", "fake annhello"]
            env.restore(here.send)
            assert (await env.run(campaign, "bob"))[:2] == ["here: a to bob", "here: hello to bob"]
            assert [call["to"] for call in env.calls(Mail.send)] == ["ann", "ann", "bob", "bob"]

    asyncio.run(scenario())

"""What the scenarios of flows share: flows from YAML, activities that can be held, and the keys of every commit."""

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, path_of, rows, together, until
from tests.support.inside import committer_of, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import HistoryEvent, Started
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.turns import Turn

P = ParamSpec("P")
CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
"""With 0 every turn reads the books from the history anew."""


def flow(text: str) -> hf.Flow:
    """The flow of a text. One without a name is called `f`."""
    named = text if text.lstrip().startswith("flow:") else f"flow: f\n{text}"
    return hf.Flow.parse(named)


def played(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, on an event loop of its own, within a bound."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        together(test(*args, **kwargs))

    return run


class Tired(Exception):
    """Derives from `Exception` only."""


class VeryTired(Tired):
    """To be caught by its base class, too."""


ERRORS: dict[str, type[Exception]] = {"Tired": Tired, "VeryTired": VeryTired, "ValueError": ValueError}


class Troupe:
    """The activities of one test. `calls` has what ran, in the order in which it began."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.ended: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    def count(self, name: str) -> int:
        return sum(called == name for called, _ in self.calls)

    async def began(self, *names: str) -> None:
        """Until these were called, each so often as it is named."""
        wanted = Counter(names)
        await until(lambda: all(self.count(name) >= times for name, times in wanted.items()))

    async def finished(self, name: str) -> None:
        """Until one that was held has ended."""
        await until(lambda: name in self.ended)

    @property
    def activities(self) -> list[hf.Activity[..., Any]]:
        @hf.activity(name="echo")
        async def echo(value: Any = None) -> Any:
            self.calls.append(("echo", value))
            return value

        @hf.activity(name="step")
        async def step(name: str, value: Any = None) -> Any:
            self.calls.append((name, value))
            return name if value is None else value

        @hf.activity(name="held")
        async def held(name: str, value: Any = None) -> Any:
            self.calls.append((name, value))
            await self.gate(name).wait()
            self.ended.append(name)
            return name if value is None else value

        @hf.activity(name="fail", retry=hf.Retry(attempts=1))
        async def fail(name: str, error: str = "ValueError") -> Any:
            self.calls.append((name, error))
            raise ERRORS[error](name)

        @hf.activity(name="held_fail", retry=hf.Retry(attempts=1))
        async def held_fail(name: str, error: str = "ValueError") -> Any:
            self.calls.append((name, error))
            await self.gate(name).wait()
            raise ERRORS[error](name)

        @hf.activity(name="tally")
        async def tally(name: str) -> int:
            """How often it was called by this name, this time included."""
            self.calls.append((name, None))
            return self.count(name)

        return [echo, step, held, fail, held_fail, tally]


class Stage:
    """An engine with flows, and what it wrote."""

    def __init__(self) -> None:
        self.troupe = Troupe()
        self._first: dict[str, str] = {}
        self._keys: dict[int, list[str]] = {}
        self.engine: hf.Engine

    def listen(self, point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.AFTER_COMMIT:
            for member in members:
                if isinstance(member, Start) and member.first is not None and member.first.key is not None:
                    self._first[member.id] = member.first.key
                elif isinstance(member, Turn) and member.key is not None:
                    self._keys.setdefault(member.number, []).append(member.key)

    async def start(self, what: str | hf.Workflow[..., Any], *args: Any, **options: Any) -> hf.Handle[Any]:
        return await self.engine.start(what, *args, id=options.pop("id", "it"), **options)

    async def run(self, what: str | hf.Workflow[..., Any] = "f", *args: Any, **options: Any) -> Any:
        """The result. It may have been read from the store before the process that wrote it recorded the key."""
        try:
            return await (await self.start(what, *args, **options)).result()
        finally:
            if self.engine._local.running is not None:
                await committer_of(worker_of(self.engine)).drain()

    async def failure(self, what: str | hf.Workflow[..., Any] = "f", *args: Any, **options: Any) -> BaseException:
        """Run what is to fail, and give why."""
        with pytest.raises(hf.WorkflowFailed) as caught:
            await self.run(what, *args, **options)
        cause = caught.value.cause
        assert cause is not None
        return cause

    def number(self, name: str = "it") -> int:
        found = rows(path_of(self.engine), "SELECT max(number) FROM instances WHERE id = ?", name)
        number: int = found[0][0]
        return number

    def keys(self, name: str = "it") -> list[str]:
        """The keys that commits wrote, each once where several in a row are the same."""
        found = [self._first[name]] if name in self._first else []
        for key in self._keys.get(self.number(name), []):
            if not found or found[-1] != key:
                found.append(key)
        return found

    def key(self, name: str = "it") -> str:
        """The last one, without its padding; the same is in the store."""
        written = self.keys(name)
        return written[-1].rstrip("0") if written else ""

    async def until_key(self, key: str, name: str = "it") -> None:
        await until(lambda: self.key(name) == key)

    async def stored_key(self, name: str = "it") -> str:
        found = await self.engine._session.store.read_key(self.number(name))  # type: ignore[arg-type]
        assert found is not None
        return found

    def events(self, name: str = "it") -> list[HistoryEvent]:
        return history_of(path_of(self.engine), self.number(name))

    def nodes(self, name: str = "it") -> list[str]:
        """The nodes of a flow, in the order of their digits."""
        started = self.events(name)[0]
        assert isinstance(started, Started)
        found = self.engine._registry.workflow(started.workflow)
        assert isinstance(found, hf.Flow)
        return [node.id for node in found.definition.nodes]

    async def until_closed(self, name: str) -> str:
        """The state in which an instance ended."""
        await until(lambda: self.states()[name] not in ("RUNNING", "CANCEL_REQUESTED"))
        return self.states()[name]

    def states(self) -> dict[str, str]:
        return dict(rows(path_of(self.engine), "SELECT id, state FROM instances"))

    def attempts(self, name: str = "it") -> list[tuple[str, str]]:
        """Names and states of the attempts of an instance."""
        text = "SELECT name, state FROM attempts WHERE number = ? ORDER BY activity, attempt"
        return [(row[0], row[1]) for row in rows(path_of(self.engine), text, self.number(name))]

    def check(self) -> None:
        path = path_of(self.engine)
        check_tables(path)
        assert audit(path) == []


@asynccontextmanager
async def staged(
    *flows: str | hf.Workflow[..., Any] | hf.Activity[..., Any], store: str | Path = ":memory:", **options: Any
) -> AsyncGenerator[Stage]:
    """An engine that knows these flows; in the end its tables are checked."""
    stage = Stage()
    known = [flow(each) if isinstance(each, str) else each for each in flows]
    options.setdefault("fault_hook", stage.listen)
    async with engine_of(store, *known, *stage.troupe.activities, **options) as engine:
        stage.engine = engine
        yield stage
        stage.check()

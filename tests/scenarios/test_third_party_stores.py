"""An engine, a client and a worker on an object that implements `Store`, and on objects that do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.scenarios.support import together
from tests.stores.memory import MemoryStore
from tests.stores.memory_tables import MemoryTables

import holdfast as hf
from holdfast.compose import OPTIONAL, REQUIRED, capabilities_of, open_store, open_tables
from holdfast.runtime.platform import Platform, SystemClockAndIds
from holdfast.storage.contract import CODE_CHECKS, COUNTS, PAUSE, RAW_TABLES, RESTORE, RETENTION, SEARCH, Store
from holdfast.storage.wakeups import Wakeups

now_ms = SystemClockAndIds().now_ms


class OnlyStore:
    """The methods of `Store`, and nothing else: what `MemoryStore` has besides is not seen."""

    def __init__(self, tables: MemoryTables | None = None) -> None:
        self._inner = MemoryStore(now_ms, tables)

    def __getattr__(self, name: str) -> Any:
        if name not in REQUIRED:
            raise AttributeError(name)
        return getattr(self._inner, name)


def only_store(tables: MemoryTables | None = None) -> Store:
    return cast("Store", OnlyStore(tables))


def memory_store(tables: MemoryTables | None = None) -> Store:
    return MemoryStore(now_ms, tables)


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def doubled(number: int) -> int:
    answer: int = await hf.event("go", int)
    return await double(number) + answer


@hf.workflow
async def once(number: int) -> int:
    return await double(number)


@pytest.mark.parametrize("make", [only_store, memory_store])
def test_an_engine_runs_on_an_object_that_implements_the_protocol(make: Callable[[], Store]) -> None:
    async def scenario() -> None:
        async with hf.Engine(make(), workflows=[once], activities=[double]) as engine:
            assert await engine.run(once, 21, id="it") == 42
            assert (await engine.get("it").describe()).workflow == "once"

    together(scenario())


@pytest.mark.parametrize("make", [only_store, memory_store])
def test_a_client_and_a_worker_in_one_process_share_the_tables_of_two_stores(
    make: Callable[[MemoryTables], Store],
) -> None:
    async def scenario() -> None:
        tables = MemoryTables()
        async with hf.connect(make(tables), workflows=[doubled]) as client, hf.connect(make(tables)) as other:
            handle = await client.start(doubled, 20, id="it")
            async with hf.Worker(other, workflows=[doubled], activities=[double]):
                await handle.raise_event("go", 2)
                assert await handle.result() == 42

    together(scenario())


def test_an_object_that_lacks_methods_is_refused_with_their_names() -> None:
    class Partly(OnlyStore):
        commit_apart = load = None

    with pytest.raises(hf.errors.InvalidOption, match=r"; Partly lacks the methods load, commit_apart$"):
        hf.Engine(cast("Store", Partly()))


@pytest.mark.parametrize("wrong", [None, 7, b"shop.db", object(), MemoryStore, ""])
def test_what_is_no_store_at_all_is_refused(wrong: Any) -> None:
    async def connecting() -> None:
        await hf.connect(wrong)

    refusal = r"a store is the path of a file, a postgresql:// URL, or an object that implements .*Store, not "
    with pytest.raises(hf.errors.InvalidOption, match=refusal):
        hf.Engine(wrong)
    with pytest.raises(hf.errors.InvalidOption, match=refusal):
        together(connecting())


def test_an_object_that_has_everything_is_used_as_it_is() -> None:
    complete, partial = memory_store(), only_store()
    assert cast("object", open_store(complete, "full", Platform())) is complete
    assert all(hasattr(open_store(partial, "full", Platform()), name) for name in OPTIONAL)
    assert [name for name in OPTIONAL if hasattr(partial, name)] == []


def test_what_a_store_leaves_out_has_a_default_and_what_it_has_is_used() -> None:
    class WithFolder(OnlyStore):
        crash_marker_folder = Path("own")

    first, second = (open_store(cast("Store", WithFolder()), "full", Platform()) for _ in range(2))
    assert first.crash_marker_folder == Path("own")
    assert first.companion_path != second.companion_path, "errors of two stores are not counted together"
    together(cast("Any", first.check_files()))
    notifier = first.make_notifier("name", lambda _: None)
    notifier.open()
    notifier.notify(Wakeups())
    notifier.close()
    with pytest.raises(hf.StoreError, match="cannot be opened for reading only"):
        first.open_for_reading()


def test_a_capability_that_a_store_does_not_declare_is_refused_by_name() -> None:
    class Verifiable(MemoryStore):
        capabilities = frozenset({RAW_TABLES, "of a later release"})

        def open_tables(self) -> str:
            return "its tables"

    assert capabilities_of(only_store()) == frozenset()
    assert capabilities_of(memory_store()) == {SEARCH, PAUSE, RESTORE, COUNTS, CODE_CHECKS, RETENTION}
    for store in (only_store(), open_store(only_store(), "full", Platform()), memory_store()):
        with pytest.raises(hf.errors.InvalidOption, match="cannot be verified: it does not declare 'raw_tables'"):
            open_tables(store)
    assert cast("object", open_tables(Verifiable(now_ms))) == "its tables"


def test_R20_a_store_without_pauses_refuses_them_by_name() -> None:
    async def scenario() -> None:
        async with hf.Engine(only_store(), workflows=[once], activities=[double]) as engine:
            handle = await engine.start(once, 21, id="it")
            for call in (handle.pause, handle.resume):
                with pytest.raises(hf.errors.InvalidOption, match="does not declare 'pause'"):
                    await call()
            assert await handle.result() == 42

        @hf.activity(on_exhausted="pause")
        async def holds() -> None: ...

        with pytest.raises(hf.errors.UsageError, match="holds: on_exhausted"):
            async with hf.Engine(only_store(), workflows=[once], activities=[double, holds]):
                pass

    together(scenario())


def test_F2_a_store_without_attributes_lists_instances_and_refuses_the_rest_by_name() -> None:
    async def scenario() -> None:
        async with hf.Engine(only_store(), workflows=[once], activities=[double]) as engine:
            await engine.run(once, 21, id="it")
            assert [each.id for each in await engine.list()] == ["it"]
            with pytest.raises(hf.errors.InvalidOption, match="does not declare 'search'"):
                await engine.list("state = COMPLETED")
            with pytest.raises(hf.errors.InvalidOption, match="does not declare 'search'"):
                await engine.count()
            with pytest.raises(hf.errors.InvalidOption, match="does not declare 'search'"):
                await engine.start(once, 1, attributes={"customer": "acme"})

    together(scenario())

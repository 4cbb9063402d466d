"""A rolling deploy of a change that does not fit open instances, with real workers of two builds (R4-R9)."""

import asyncio
import json
import signal

import pytest
from tests.forking.processes import run
from tests.scenarios.support import together
from tests.workers.processes import worker
from tests.workers.support import sound, told

import holdfast as hf

pytestmark = pytest.mark.slow
OLD, NEW, ONLY_NEW = (f"tests.workers.deploy_{name}" for name in ("old", "new", "only_new"))
ORDERS = range(6)
NOT_YET = 0.5


async def begin(store: str, *orders: int) -> None:
    """Start orders by name, and wait until each has done its first step."""
    async with await hf.connect(store) as client:
        for order in orders:
            await client.start("checkout", order, id=f"order-{order}")

        async def have_begun() -> bool:
            found = [await client.get(f"order-{order}").describe() for order in orders]
            return all(each.turn == 2 for each in found)

        async with asyncio.timeout(30):
            await told(have_begun)


async def confirm(store: str, *orders: int) -> None:
    async with await hf.connect(store) as client:
        for order in orders:
            await client.get(f"order-{order}").raise_event("confirmed", 1)


async def results(store: str, *orders: int, seconds: float = 30) -> list[object]:
    async with await hf.connect(store) as client:
        return [await client.get(f"order-{order}").result(timeout=seconds) for order in orders]


async def finish(store: str, *orders: int) -> list[object]:
    await confirm(store, *orders)
    return await results(store, *orders)


def on_old(order: int) -> list[str]:
    return ["1", f"reserved {order}", f"charged {order}"]


def on_new(order: int) -> list[str]:
    return ["2", f"charged {order}", f"reserved {order}"]


def builds(store: str) -> dict[str, dict[str, object]]:
    done = run("holdfast.cli:main", "builds", "--json", "--store", store)
    assert done.code == 0, done.complaints
    return {each["build"]: each for each in json.loads(done.said)["builds"]}


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL])
def test_R8_a_rolling_deploy_ends_old_instances_on_the_old_code_and_new_ones_on_the_new(
    store: str, way: signal.Signals
) -> None:
    with worker(store, "--build", "old", "--lease", "5", app=OLD) as old:
        together(begin(store, *ORDERS))
        assert builds(store)["old"]["only_here"] == 0, "its worker holds them"
        assert builds(store)["old"]["open"] == len(ORDERS)
        with worker(store, "--build", "new", "--lease", "5", app=NEW) as new:
            assert together(finish(store, 0, 1)) == [on_old(0), on_old(1)]
            old.send_signal(way)
            waited = run("holdfast.cli:main", "builds", "--wait-drained", "old", "--timeout", "30", "--store", store)
            assert waited.code == 0, waited.complaints
            assert waited.said.splitlines()[-1].startswith("build old is drained: "), waited.said
            together(begin(store, 10, 11))
            assert together(finish(store, 2, 10, 3, 11)) == [on_old(2), on_new(10), on_old(3), on_new(11)]
            assert builds(store)["new"]["workers"] == 1
            new.send_signal(signal.SIGTERM)
            assert new.left()[0] == 0
    sound(store)


def test_R8_instances_of_a_version_that_nobody_has_wait_and_the_command_names_them(store: str) -> None:
    with worker(store, "--build", "old", "--lease", "5", app=OLD) as old:
        together(begin(store, 0))
        old.send_signal(signal.SIGTERM)
        old.left()
    with worker(store, "--build", "new", "--lease", "5", app=ONLY_NEW):
        together(begin(store, 10))
        assert together(finish(store, 10)) == [on_new(10)]
        together(confirm(store, 0))
        with pytest.raises(TimeoutError):
            together(results(store, 0, seconds=NOT_YET))
        found = builds(store)
        assert (found["old"]["workers"], found["old"]["only_here"], found["old"]["is_drained"]) == (0, 1, False)
        assert (found["new"]["workers"], found["new"]["open"], found["new"]["is_drained"]) == (1, 0, True)
        waited = run("holdfast.cli:main", "builds", "--wait-drained", "old", "--timeout", "0.3", "--store", store)
        assert waited.code == 1
        assert "build old: 1 open instance that only it can run, 0 live workers" in waited.said
        assert "build old is not drained after 0.3 s" in waited.complaints
        shown = run("holdfast.cli:main", "show", "order-0", "--store", store)
        assert "no live worker has version 1 of 'checkout' (known: 2)" in shown.said
    with worker(store, "--build", "again", "--lease", "5", app=OLD):
        assert together(results(store, 0)) == [on_old(0)]
    sound(store)


def test_R9_an_unknown_build_is_an_error(store: str) -> None:
    with worker(store, "--build", "old", app=OLD):
        waited = run("holdfast.cli:main", "builds", "--wait-drained", "olt", "--store", store)
        assert waited.code == 2
        assert "the store knows no worker of build 'olt'; known: old" in waited.complaints

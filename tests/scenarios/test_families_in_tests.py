"""Children in a program's own tests: time skips for them, and the worker may die at every commit (L13)."""

import asyncio

import pytest
from tests.scenarios.support import skipping
from tests.scenarios.test_children import Box, pack, tries, weigh

import holdfast as hf
from holdfast.testing.environment import Environment


@hf.workflow
async def naps(days: int) -> int:
    await asyncio.sleep(days * 86_400)
    return days


@hf.workflow
async def waits_months() -> list[int]:
    first = await hf.start(naps, 90)
    rest = await asyncio.gather(naps(30), naps(60))
    return [await first, *rest]


@hf.workflow
async def a_whole_family() -> list[object]:
    found: list[object] = [await pack("ring"), await tries()]
    handle = await hf.start(naps, 10, id="nap")
    try:
        async with asyncio.timeout(60):
            await handle
    except TimeoutError:
        found.append("too long")
    try:
        await handle
    except hf.WorkflowCancelled:
        found.append("cancelled")
    await hf.start(naps, 10)
    return found


def test_time_skips_over_what_children_wait_for() -> None:
    async def scenario(env: Environment) -> None:
        before = env.now
        assert await env.run(waits_months, id="it") == [90, 30, 60]
        assert (env.now - before).days == 90

    skipping(waits_months, naps).run_sync(scenario)


@pytest.mark.slow
def test_L13_a_family_ends_as_in_a_calm_run_wherever_the_worker_dies() -> None:
    async def scenario(env: Environment) -> None:
        report = await env.crash_at_every_commit(a_whole_family)
        report.check()
        assert report.crashes > 10

    skipping(a_whole_family, pack, tries, naps, weigh).run_sync(scenario)


@hf.workflow
async def wraps(label: str) -> str:
    box = await pack(label)
    return f"{box.label}, {box.grams} g"


def test_a_child_is_replaced_by_a_function_or_an_exception_and_restored() -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(wraps, "ring") == "a fake ring, 7 g"
        env.replace(pack, with_=KeyError("no box"))
        with pytest.raises(hf.WorkflowFailed, match="no box"):
            await env.run(wraps, "ring")
        env.replace(pack, with_=empty)
        assert await env.run(wraps, "ring") == "ring, 0 g"
        env.restore(pack)
        assert await env.run(wraps, "ring") == "ring, 4 g"
        env.replace(pack, with_=fake)
        report = await env.crash_at_every_commit(wraps, "ring")
        report.check()
        assert report.result == "'a fake ring, 7 g'"
        with pytest.raises(hf.errors.UsageError, match="does not have <workflow naps>"):
            env.replace(naps, with_=fake)
        with pytest.raises(hf.errors.InvalidOption, match="the replacement of pack does not take its arguments"):
            env.replace(pack, with_=lambda: None)

    def empty(label: str) -> Box:
        return Box(label, 0)

    async def fake(label: str) -> Box:
        await asyncio.sleep(86_400)
        return Box(f"a fake {label}", 7)

    Environment(workflows=[wraps, pack], activities=[weigh], replace={pack: fake}).run_sync(scenario)

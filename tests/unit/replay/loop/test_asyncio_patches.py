"""asyncio's functions are replaced for workflows only, once, and look like the originals."""

import asyncio
import inspect
from typing import Any

import pytest
from tests.unit.replay.driver import after

from holdfast.replay.loop import asyncio_patches as compat


@pytest.mark.parametrize("name", ["wait_for", "as_completed", "gather"])
def test_a_dispatcher_looks_like_the_original_and_is_installed_once(name: str) -> None:
    before = getattr(asyncio, name)
    assert before is getattr(asyncio.tasks, name)
    original = inspect.unwrap(before)
    assert original is not before
    assert not hasattr(original, "__wrapped__")
    assert inspect.signature(before) == inspect.signature(original)
    assert before.__doc__ == original.__doc__
    compat.install()
    assert getattr(asyncio, name) is before


def test_outside_a_workflow_everything_is_the_original() -> None:
    async def outside() -> list[Any]:
        semaphore, condition = asyncio.Semaphore(1), asyncio.Condition()
        async with semaphore, condition:
            pass
        async with asyncio.TaskGroup() as group:
            member = group.create_task(after(0, "member"))
        gathered = asyncio.gather(after(0, 1), after(0, 2))
        assert not isinstance(gathered, compat.GatheringFuture)
        completed: Any = asyncio.as_completed([after(0, 3)])
        assert not isinstance(completed, compat.CompletionIterator)
        return [
            member.result(),
            await gathered,
            [await nearest for nearest in completed],
            await asyncio.wait_for(after(0, 4), 9),
        ]

    assert asyncio.run(outside()) == ["member", [1, 2], [3], 4]


def test_our_gather_is_for_workflows_only() -> None:
    with pytest.raises(RuntimeError, match="workflow loop"):
        compat.gather()

"""``hf.activity_info``, ``hf.info`` and the kinds of time-outs (A5)."""

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, rows, together, until

import holdfast as hf
from holdfast.core.children import default_child_id

seen: list[Any] = []


@hf.activity(start_to_close=20, schedule_to_close=60)
async def shows() -> list[str | None]:
    return _shown(hf.activity_info())


@hf.activity(start_to_close=20, schedule_to_close=60)
def shows_in_thread() -> list[str | None]:
    return _shown(hf.activity_info())


@hf.activity(process=True, start_to_close=20, schedule_to_close=60)
def shows_in_process() -> list[str | None]:
    return _shown(hf.activity_info())


@hf.activity
async def unlimited() -> bool:
    return hf.activity_info().deadline is None


@hf.activity(retry=hf.Retry(attempts=2, initial=0))
async def beats() -> object:
    if hf.activity_info().attempt == 1:
        hf.heartbeat("half")
        raise ValueError
    return hf.activity_info().details


def _shown(info: hf.ActivityInfo) -> list[str | None]:
    return [None if each is None else each.isoformat() for each in (info.scheduled_at, info.started_at, info.deadline)]


@hf.activity
async def hangs() -> None:
    await asyncio.sleep(30)


@hf.workflow
async def calls(name: str) -> list[str | None]:
    activity: Any = {each.name: each for each in (shows, shows_in_thread, shows_in_process)}[name]
    shown: list[str | None] = await activity()
    assert await unlimited()
    assert await beats() == "half"
    return shown


@hf.workflow
async def times_out(kind: str) -> list[object]:
    options: Any = {kind: 0.05, "retry": hf.Retry(attempts=1)}
    if kind == "schedule_to_start":
        options["queue"] = "nobody"
    try:
        await hangs.with_options(**options)()
    except hf.ActivityTimedOut as error:
        kinds: list[object] = [error.kind]
        await hf.event("again")
        return [*kinds, error.kind]
    return []


@hf.workflow
async def root(depth: int) -> list[Any]:
    if depth:
        return await root(depth - 1)
    info = hf.info()
    seen.append(info.is_replaying)
    await hf.event("go")
    after = hf.info()
    assert after.started_at == info.started_at
    return [info.root, info.parent, info.execution, info.version, info.started_at.isoformat()]


@pytest.mark.parametrize("name", ["shows", "shows_in_thread", "shows_in_process"])
def test_A5_a_body_knows_its_times(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        known = (calls, shows, shows_in_thread, shows_in_process, unlimited, beats)
        async with engine_of(tmp_path / "shop.db", *known) as engine:
            scheduled, started, deadline = map(dt.datetime.fromisoformat, await engine.run(calls, name, id="a"))  # type: ignore[arg-type]
            assert scheduled.utcoffset() == dt.timedelta(0)
            assert scheduled <= started < deadline
            assert deadline == started + dt.timedelta(seconds=20)

    together(scenario())


@pytest.mark.parametrize("kind", ["schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat"])
def test_A5_a_time_out_says_which_one_it_was(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", times_out, hangs, cache_size=0) as engine:
            handle = await engine.start(times_out, kind, id="a")
            await handle.raise_event("again")
            assert await handle.result() == [kind, kind]

    together(scenario())


def test_G12_a_workflow_knows_its_root_and_whether_it_is_rebuilt(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen.clear()
        async with engine_of(tmp_path / "shop.db", root, cache_size=0) as engine:
            alone = await engine.start(root, 0, id="alone")
            await alone.raise_event("go")
            assert (await alone.result())[:4] == ["alone", None, 1, ""]
            top = await engine.start(root, 3, id="top")
            child = "top"
            for _ in range(3):
                child = default_child_id(child, 1, 0)
            query = f"SELECT 1 FROM instances WHERE id = '{child}'"  # noqa: S608 - a constant
            await until(lambda: rows(tmp_path / "shop.db", query))
            await engine.get(child).raise_event("go")
            assert (await top.result())[0] == "top"
        assert set(seen) == {False, True}

    together(scenario())

"""Large values of type bytes are in the side table as they are, and reach everybody as they were."""

from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.scenarios.support import engine_of, rows, together

import holdfast as hf
from holdfast.audit import audit

IMAGE = bytes(range(256)) * 400
CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@hf.activity
async def paint() -> bytes:
    return IMAGE


@hf.activity
async def paint_parts() -> AsyncIterator[bytes]:
    yield IMAGE[:50_000]
    yield IMAGE[50_000:]


@hf.activity
async def turn(image: bytes) -> bytes:
    return image[::-1]


@hf.workflow
async def copies() -> bytes:
    return await paint()


@hf.workflow
async def works() -> bool:
    painted = await paint()
    parts = b"".join([part async for part in paint_parts()])
    sent = await hf.event("image", bytes)
    made = hf.side_effect(lambda: IMAGE, bytes)
    return painted == parts == sent == made == await copies() == (await turn(IMAGE))[::-1]


@hf.workflow
async def answers() -> None:
    @hf.on_update
    def image() -> bytes:
        return IMAGE

    del image
    await hf.event("go")


ALL = (paint, paint_parts, turn, copies, works, answers)


@CACHES
def test_bytes_are_stored_raw_and_read_as_they_were(tmp_path: Path, cache_size: int) -> None:
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(store, *ALL, cache_size=cache_size) as engine, hf.connect(store) as client:
            handle = await engine.start(works, id="it")
            await client.get("it").raise_event("image", IMAGE)
            assert await handle.result() is True
            assert await engine.run(copies, id="copy") == IMAGE
            assert await client.run(copies, id="copy") == IMAGE
            asked = await engine.start(answers, id="asked")
            assert await asked.update("image", returns=bytes) == IMAGE
            hf.testing.Replayer(workflows=[works, copies]).replay(await handle.export_history())

    together(scenario())
    stored = [bytes(data) for (data,) in rows(store, "SELECT data FROM payloads")]
    assert set(stored) >= {IMAGE, IMAGE[:50_000], IMAGE[50_000:], IMAGE[::-1]}
    assert [data[:20] for data in stored if data not in (IMAGE, IMAGE[:50_000], IMAGE[50_000:], IMAGE[::-1])] == [
        b'{"image":"AAECAwQFBg'  # the arguments of a call are one object, and what is inside stays base64
    ]
    assert audit(store) == []
    rows(store, "UPDATE payloads SET data = ? WHERE substr(reference, 1, 6) = 'bytes-'", b"other")
    assert {problem.rule for problem in audit(store)} == {"payloads-there"}


def test_a_flow_reads_large_bytes_as_base64(tmp_path: Path) -> None:
    flow = hf.Flow("pictures")
    start = flow.trigger("start")
    painted = flow.run("painted", paint, after=start)
    flow.run("turned", turn, after=painted, input={"image": painted.output})
    flow.output(painted.output)

    async def scenario() -> bytes:
        async with hf.Engine(tmp_path / "shop.db", flows=[flow], activities=[paint, turn]) as engine:
            output: str = await engine.run(flow)
            return b64decode(output)

    assert together(scenario()) == IMAGE
    assert audit(tmp_path / "shop.db") == []

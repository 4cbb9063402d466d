"""Large values of type bytes are in the side table as they are, and reach everybody as they were."""

from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.support import engine_of, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES

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


LIMIT = 20_000


@hf.activity
async def fill(count: int) -> bytes:
    return bytes(count)


@hf.activity
def fill_in_thread(count: int) -> bytes | None:
    return bytes(count)


@hf.activity(process=True)
def fill_in_process(count: int) -> bytes:
    return bytes(count)


@hf.activity
async def fill_parts(count: int) -> AsyncIterator[bytes]:
    yield bytes(count)


@hf.workflow
async def fills(where: str, count: int) -> int | bytes:
    match where:
        case "async":
            return len(await fill(count))
        case "thread":
            return len(await fill_in_thread(count) or b"")
        case "process":
            return len(await fill_in_process(count))
        case "stream":
            return sum([len(part) async for part in fill_parts(count)])
        case "side effect":
            return len(hf.side_effect(lambda: bytes(count), bytes))
        case "event":
            hf.raise_event("nobody", "image", bytes(count))
            return count
        case _:
            return bytes(count)


@hf.workflow
async def shows() -> int:
    @hf.on_update
    def made(count: int) -> bytes:
        return bytes(count)

    @hf.on_query
    def seen(count: int) -> bytes:
        return bytes(count)

    del made, seen
    return len(await hf.event("image", bytes))


FILLS = (fill, fill_in_thread, fill_in_process, fill_parts, fills, shows)


@pytest.mark.parametrize("where", ["async", "thread", "process", "stream", "side effect", "event", "result"])
def test_G13_the_limit_counts_the_bytes_that_a_value_of_type_bytes_has(tmp_path: Path, where: str) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *FILLS, payload_limit=LIMIT) as engine:
            result = await engine.run(fills, where, LIMIT)
            assert (len(result) if isinstance(result, bytes) else result) == LIMIT
            with pytest.raises(hf.WorkflowFailed, match=r"has 20,001 bytes, and payload_limit is 20,000"):
                await engine.run(fills, where, LIMIT + 1)

    together(scenario())
    assert audit(tmp_path / "shop.db") == []


def test_G13_messages_may_have_as_many_bytes_as_the_limit_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *FILLS, payload_limit=LIMIT) as engine:
            handle = await engine.start(shows)
            assert len(await handle.update("made", LIMIT, returns=bytes)) == LIMIT
            assert len(await handle.query("seen", LIMIT, returns=bytes)) == LIMIT
            with pytest.raises(hf.UpdateFailed, match="has 20,001 bytes"):
                await handle.update("made", LIMIT + 1)
            with pytest.raises(hf.QueryFailed, match="has 20,001 bytes"):
                await handle.query("seen", LIMIT + 1)
            with pytest.raises(hf.errors.PayloadTooLarge, match="has 20,001 bytes"):
                await handle.raise_event("image", bytes(LIMIT + 1))
            await handle.raise_event("image", bytes(LIMIT))
            assert await handle.result() == LIMIT

    together(scenario())
    assert audit(tmp_path / "shop.db") == []


def test_G13_a_text_that_could_be_base64_counts_as_it_is(tmp_path: Path) -> None:
    @hf.activity
    async def write(count: int) -> str:
        return "A" * count

    @hf.workflow
    async def writes(count: int) -> int:
        return len(await write(count))

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", write, writes, payload_limit=LIMIT) as engine:
            with pytest.raises(hf.WorkflowFailed, match="has 20,002 bytes"):
                await engine.run(writes, LIMIT)

    together(scenario())


def test_G13_a_result_may_have_32_mebibytes_of_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *FILLS) as engine:
            assert await engine.run(fills, "async", PAYLOAD_LIMIT_BYTES) == PAYLOAD_LIMIT_BYTES
            with pytest.raises(hf.WorkflowFailed, match=r"has 33,554,433 bytes, and payload_limit is 33,554,432"):
                await engine.run(fills, "async", PAYLOAD_LIMIT_BYTES + 1)

    together(scenario())


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


@dataclass
class Counted:
    number: int

    def __post_init__(self) -> None:
        made.append(self.number)


made: list[int] = []


@hf.activity(process=True)
def count_in_process(count: int) -> list[Counted]:
    return [Counted(number) for number in range(count)]


@hf.workflow
async def counts(count: int) -> int:
    return len(await count_in_process(count))


def test_G13_the_size_of_a_result_from_a_process_is_checked_without_the_code_of_its_type(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", counts, count_in_process, payload_limit=LIMIT) as engine:
            with pytest.raises(hf.WorkflowFailed, match="and payload_limit is 20,000"):
                await engine.run(counts, LIMIT)
            assert made == []

    made.clear()
    together(scenario())

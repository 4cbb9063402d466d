"""Large inputs stand in the side table once for each instance; bodies, retries and other processes get them whole."""

import asyncio
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.payloads.limits import INLINE_LIMIT_BYTES

TEXT = "ä" * 100_000
CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
seen: list[int] = []


@hf.activity
async def measure(text: str) -> int:
    return len(text)


@hf.activity(process=True)
def measure_in_process(text: str) -> int:
    return len(text)


@hf.activity(retry=hf.Retry(attempts=3, initial=0.01, jitter=False))
async def measure_at_last(text: str) -> int:
    seen.append(len(text))
    if hf.activity_info().attempt < 3:
        raise ConnectionError
    return len(text)


@hf.workflow
async def measures(text: str) -> list[int]:
    lengths = await asyncio.gather(*(measure(text) for _ in range(5)))
    return [*lengths, await measure_at_last(text), await measure(text[:1])]


@hf.workflow
async def measures_in_process(text: str) -> int:
    return await measure_in_process(text)


def check_rows(path: Path, copies: int) -> None:
    """No row that is read often has a large input, and the same input is there once."""
    check_tables(path)
    assert audit(path) == []
    longest = max(
        rows(path, f"SELECT max(length({column})) FROM {table}")[0][0] or 0  # noqa: S608 - names from here
        for table, column in (("instances", "input"), ("attempts", "input"), ("history", "events"))
    )
    assert longest <= INLINE_LIMIT_BYTES
    assert rows(path, "SELECT count(*) FROM payloads") == [(copies,)]


@CACHES
def test_the_same_large_input_is_stored_once_and_reaches_every_attempt(tmp_path: Path, cache_size: int) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        seen.clear()
        async with engine_of(path, measure, measure_at_last, measures, cache_size=cache_size) as engine:
            expected = [*[len(TEXT)] * 6, 1]
            assert await engine.run(measures, TEXT, id="a") == expected
            assert await engine.run(measures, TEXT, id="a") == expected, "the same input, by its hash (G3)"
            with pytest.raises(hf.InstanceConflict, match="different input"):
                await engine.start(measures, TEXT[1:], id="a")
            history = await engine.get("a").history()
            assert history[0].fields["input"] == {"data": {"text": TEXT}}
            assert (await engine.get("a").describe()).collation_key == "6" * 7
        assert seen == [len(TEXT)] * 3
        check_rows(path, copies=1)  # workflow and activities have the same arguments, so the same JSON

    together(scenario())


def test_a_body_in_a_process_gets_its_large_input(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, measure_in_process, measures_in_process) as engine:
            assert await engine.run(measures_in_process, TEXT, id="a") == len(TEXT)
        check_rows(path, copies=1)

    together(scenario())


def test_C1_large_inputs_cross_from_a_client_to_one_engine_and_on_to_another(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        seen.clear()
        client = await hf.connect(path, workflows=[measures])
        handle = await client.start(measures, TEXT, id="a")
        async with engine_of(path, measures), engine_of(path, measure, measure_at_last):
            assert await handle.result() == [*[len(TEXT)] * 6, 1]
        await client.close()
        check_rows(path, copies=1)

    together(scenario())


def test_a_large_input_that_is_gone_fails_its_attempt_and_nothing_else(tmp_path: Path) -> None:
    """Damage that `verify` names: the one who claims it must not stumble over it again and again."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        async with engine_of(path, measures) as engine:
            await engine.start(measures, TEXT, id="a")
        rows(path, "DELETE FROM payloads")
        assert {problem.rule for problem in audit(path)} == {"payloads-there"}
        async with engine_of(path, measure, measure_at_last) as engine:
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'FAILED'"))
            assert await engine.list("state = RUNNING")

    together(scenario())

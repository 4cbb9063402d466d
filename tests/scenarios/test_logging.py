"""Log records of workflow code and of activities: written once, with the ids of what they belong to (G11)."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, together, until
from tests.support.inside import key_of, worker_of

import holdfast as hf
from holdfast.authoring.log import FIELDS, records

logger = logging.getLogger("shop.orders")


@hf.activity
async def charge(cents: int) -> int:
    logger.info("charging %d", cents, extra={"cents": cents})
    hf.log.warning("charged %d", cents, currency="EUR", extra={"name": "ann"})
    return cents


@hf.activity
def charge_in_a_thread(cents: int) -> int:
    logger.info("charging %d in a thread", cents)
    return cents


@hf.activity
async def fails() -> None:
    try:
        raise ValueError("no money")
    except ValueError:
        hf.log.exception("could not charge")


@hf.workflow
async def order(cents: int) -> int:
    logger.info("begins")
    hf.log.info("order of %d", cents, extra={"cents": cents})
    total = 0

    @hf.on_query
    def so_far() -> int:
        logger.info("asked")
        return total

    try:
        for _ in range(3):
            total += await charge(cents)
            logger.info("has %d", total)
        await charge_in_a_thread(cents)
        await fails()
        await hf.event("go")
        hf.log.critical("ends")
    finally:
        logger.info("over")
    return total


ALL = (charge, charge_in_a_thread, fails, order)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    factory = logging.getLogRecordFactory()
    caplog.set_level(logging.INFO)
    yield caplog
    assert logging.getLogRecordFactory() == factory, "what an engine installed is gone when it is closed"


def _of_users(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name.startswith(("shop", "holdfast.w", "holdfast.activity"))]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FIELDS}


@pytest.mark.parametrize("cache_size", [1_000, 0])
def test_G11_records_of_workflow_code_are_written_once_and_have_ids(
    tmp_path: Path, log: pytest.LogCaptureFixture, cache_size: int
) -> None:
    async def scenario() -> str:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(order, 7, id="it")
            await until(lambda: "could not charge" in [record.getMessage() for record in log.records])
            assert await handle.query("so_far") == 21
            await handle.raise_event("go")
            assert await handle.result(timeout=10) == 21
            return str(key_of(worker_of(engine)))

    worker = together(scenario())
    found = _of_users(log)
    of_workflow = [record.getMessage() for record in found if record.__dict__["holdfast_activity"] is None]
    once = ["begins", "order of 7", "has 7", "has 14", "has 21", "asked", "ends", "over"]
    assert sorted(of_workflow) == sorted(once), "neither replay nor teardown writes a line again"
    assert {record.__dict__["holdfast_instance"] for record in found} == {"it"}
    by_text = {record.getMessage(): record for record in found}
    common = {"holdfast_instance": "it", "holdfast_workflow": "order", "holdfast_execution": 1}
    nothing = {"holdfast_activity": None, "holdfast_attempt": None}
    of_charge = {"holdfast_activity": "charge", "holdfast_attempt": 1, "holdfast_worker": worker}
    assert _fields(by_text["has 7"]) == {**common, **nothing, "holdfast_worker": worker}
    assert _fields(by_text["order of 7"]) == {**common, **nothing, "holdfast_worker": worker}
    assert _fields(by_text["charging 7"]) == {**common, **of_charge}
    assert _fields(by_text["charged 7"]) == {**common, **of_charge}
    assert _fields(by_text["charging 7 in a thread"])["holdfast_activity"] == "charge_in_a_thread"


def test_extra_arrives_flat_and_errors_with_their_traceback(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(order, 7, id="it")
            await handle.raise_event("go")
            await handle.result(timeout=10)

    together(scenario())
    by_text = {record.getMessage(): record for record in _of_users(log)}
    line = by_text["order of 7"]
    assert (line.__dict__["cents"], line.name, line.filename) == (7, "holdfast.workflow", Path(__file__).name)
    assert line.funcName == "order"
    warning = by_text["charged 7"]
    assert (warning.__dict__["currency"], warning.__dict__["name_"]) == ("EUR", "ann")
    assert (warning.name, warning.levelno) == ("holdfast.activity", logging.WARNING)
    failed = by_text["could not charge"]
    assert failed.exc_info is not None
    assert str(failed.exc_info[1]) == "no money"
    assert by_text["ends"].levelno == logging.CRITICAL


def test_records_of_other_code_are_left_alone(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL):
            logger.info("outside")
            with pytest.raises(hf.errors.NotInWorkflow, match="elsewhere use Python's `logging`"):
                hf.log.info("outside")

    together(scenario())
    [record] = _of_users(log)
    assert not any(hasattr(record, name) for name in FIELDS)


def test_a_line_of_the_engine_keeps_the_ids_that_it_names(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    @hf.activity
    async def logs_as_the_engine() -> None:
        logging.getLogger("holdfast").warning("another instance", extra={"holdfast_instance": "other"})

    @hf.workflow
    async def parent() -> None:
        await logs_as_the_engine()

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", parent, logs_as_the_engine) as engine:
            await engine.run(parent, id="it")

    together(scenario())
    [record] = [record for record in log.records if record.message == "another instance"]
    assert getattr(record, FIELDS[0]) == "other"


def test_a_factory_of_the_program_is_kept_and_called(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    def stamped(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        record.__dict__["release"] = "1.2"
        return record

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            await engine.start(order, 7, id="it")

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(stamped)
    try:
        together(scenario())
        assert logging.getLogRecordFactory() == stamped
    finally:
        logging.setLogRecordFactory(before)
    [begins] = [record for record in _of_users(log) if record.getMessage() == "begins"]
    assert (begins.__dict__["release"], begins.__dict__["holdfast_instance"]) == ("1.2", "it")


def test_a_factory_that_is_set_on_top_stays_when_the_engine_is_closed() -> None:
    before = logging.getLogRecordFactory()
    records.install()

    ours = logging.getLogRecordFactory()

    def on_top(*args: Any, **kwargs: Any) -> logging.LogRecord:
        return ours(*args, **kwargs)

    logging.setLogRecordFactory(on_top)
    try:
        records.uninstall()
        assert logging.getLogRecordFactory() is on_top
        assert logging.getLogger("shop").makeRecord("shop", 20, "", 1, "text", (), None).getMessage() == "text"
        records.install()
        records.uninstall()
        assert logging.getLogger("shop").makeRecord("shop", 20, "", 1, "text", (), None).getMessage() == "text"
    finally:
        logging.setLogRecordFactory(before)


def test_records_of_a_process_body_have_ids(tmp_path: Path) -> None:
    async def scenario() -> dict[str, Any]:
        async with engine_of(tmp_path / "shop.db", in_a_process, asks_a_process) as engine:
            return await engine.run(asks_a_process, id="it")

    fields = together(scenario())
    assert fields["holdfast_instance"] == "it"
    assert (fields["holdfast_activity"], fields["holdfast_attempt"]) == ("in_a_process", 1)
    assert fields["holdfast_worker"]


class _Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@hf.activity(process=True)
def in_a_process() -> dict[str, Any]:
    keep = _Keep()
    logger.addHandler(keep)
    logger.warning("in a process")
    [record] = keep.records
    return _fields(record)


@hf.workflow
async def asks_a_process() -> dict[str, Any]:
    return await in_a_process()


def test_a_client_that_replays_for_a_query_writes_no_line_again(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(order, 7, id="it")
            await handle.raise_event("go")
            await handle.result(timeout=10)
        log.clear()
        async with await hf.connect(path, workflows=[order]) as client:
            assert await client.get("it").query("so_far") == 21
        await asyncio.sleep(0)  # simulated time: nothing else is on its way

    together(scenario())
    assert [record.getMessage() for record in _of_users(log)] == ["asked"]


@hf.activity
async def names_an_id() -> None:
    logger.warning("of another instance", extra={"holdfast_instance": "x", "cents": 7})


@hf.workflow
async def names_ids() -> None:
    logger.warning("of another workflow", extra={"holdfast_workflow": "y"})
    await names_an_id()


def test_an_extra_with_the_name_of_an_id_wins(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", names_an_id, names_ids) as engine:
            await engine.run(names_ids, id="it")
            ours = logging.getLogRecordFactory()

            def on_top(*args: Any, **kwargs: Any) -> logging.LogRecord:
                return ours(*args, **kwargs)

            logging.setLogRecordFactory(on_top)
            try:
                await engine.run(names_ids, id="with a factory on top")
            finally:
                logging.setLogRecordFactory(ours)

    together(scenario())
    found = _of_users(log)
    formatter = logging.Formatter("%(holdfast_instance)s %(holdfast_workflow)s %(message)s")
    assert [formatter.format(record) for record in found] == [
        "it y of another workflow",
        "x names_ids of another instance",
        "with a factory on top y of another workflow",
        "x names_ids of another instance",
    ]

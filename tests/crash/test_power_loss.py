"""Power cuts: of what the disk was told and did not sync, anything may be missing. What was acknowledged never is.

A real worker runs on a recorded disk (`tests.crash.recorded`). From its log the files are put together as a power cut
at some moment may leave them (`tests.crash.disk`); an engine opens them, and everything that anybody had been told by
then has to be there, and has to go on to its end.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251 - seeded, and the seed is printed with a failure

import pytest
from tests.crash import recorded
from tests.crash.disk import MAIN, Disk, Image, Log, Made, Removed, Synced, Told, Wrote, decode_log
from tests.forking.processes import run
from tests.scenarios.support import history_of, rows, together
from tests.support.examples import examples

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import ActivityCompleted, TimerFired

INSTANCES = 8
IMAGES = examples(dev=60, ci=60, nightly=1_000)
FINISH_EVERY = 4
SECOND_CUTS = 3
pytestmark = pytest.mark.timeout(600)  # a thousand power cuts at night


@dataclass(frozen=True)
class PowerCut:
    """The files after one cut, on disk again, and the log up to it. The seed repeats it."""

    name: str
    store: Path
    before: Log
    image: Image


def record(folder: Path, durability: str = "full") -> Log:
    """Run a worker to its end in another process, on what is in the folder, and give what its disk was told."""
    target = folder / "log"
    outcome = run("tests.crash.recorded:main", folder / "shop.db", target, durability, INSTANCES)
    assert outcome.code == 0, outcome.complaints
    return decode_log(target.read_bytes())


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """One life of a worker on a durable store."""
    log = record(tmp_path_factory.mktemp("life"))
    check_is_not_void(log)
    assert sum(isinstance(entry, Synced) and entry.file == "-wal" for entry in log) > INSTANCES
    return log


def power_cuts(log: Log, folder: Path, count: int) -> Iterator[PowerCut]:
    """Power cuts: every other one just after somebody was told something, the others anywhere."""
    told = [at + 1 for at, entry in enumerate(log) if isinstance(entry, Told)]
    for seed in range(count):
        chance = Random(seed)  # noqa: S311 - not a secret
        at = chance.choice(told) if seed % 2 else chance.randint(1, len(log))
        image = Disk(log[:at]).cut(chance)
        store = folder / f"cut-{seed}" / "shop.db"
        store.parent.mkdir()
        for name, content in image.files.items():
            store.with_name(store.name + name).write_bytes(content)
        yield PowerCut(f"power cut {seed} at entry {at} of {folder / 'log'}", store, log[:at], image)


def lost(store: Path, log: Log) -> list[str]:
    """What somebody had been told and is not in the store. Told of a body's begin, one knows what it waited for."""
    numbers = {name: (number, state) for name, number, state in rows(store, "SELECT id, number, state FROM instances")}
    missing: list[str] = []
    for told in (entry for entry in log if isinstance(entry, Told)):
        number, state = numbers.get(told.instance, (0, "nowhere"))
        if not number or (told.what == "ended" and state != "COMPLETED"):
            missing.append(f"{told.instance} {told.what}, and is {state}")
        elif told.what == "began":
            events = history_of(store, number)
            done = {event.activity for event in events if isinstance(event, ActivityCompleted)}
            needed = set(range(min(told.step, recorded.FIRST_OF_GROUP)))
            if not needed <= done:
                missing.append(f"step {told.step} of {told.instance} began, and {sorted(needed - done)} are gone")
            if told.step >= recorded.FIRST_OF_GROUP and not any(isinstance(event, TimerFired) for event in events):
                missing.append(f"step {told.step} of {told.instance} began, and its timer has not fired")
    return missing


async def open_and_close(store: Path) -> None:
    """What any process does first: SQLite recovers the file, and the schema is made if it is not there."""
    client = await hf.connect(store)
    await client.close()


async def go_on(store: Path, names: list[str]) -> None:
    """Finish everything that is there, and one more."""
    async with hf.Engine(store, workflows=[recorded.chain], activities=[recorded.link]) as engine:
        for name in names:
            assert await engine.get(name).result() == recorded.RESULT
        assert await engine.run(recorded.chain, "new", id="new") == recorded.RESULT


def check_goes_on(store: Path) -> None:
    """The instances in an image come to their end, and no step that was recorded runs again."""
    done = "SELECT id, activity FROM attempts JOIN instances USING (number) WHERE attempts.state = 'COMPLETED'"
    before = set(rows(store, done))
    names = [name for (name,) in rows(store, "SELECT id FROM instances")]
    recorded.ran.clear()
    together(go_on(store, names))
    assert not before & set(recorded.ran), "a recorded step ran again"
    assert audit(store) == []


def check_is_not_void(log: Log) -> None:
    """The run had all that a power cut can hit."""
    kinds = Counter((type(entry), getattr(entry, "file", getattr(entry, "what", ""))) for entry in log)
    assert kinds[Wrote, "-wal"] > 100
    assert kinds[Wrote, MAIN] > 20, "no checkpoint wrote to the database"
    assert sum(isinstance(entry, Wrote) and (entry.file, entry.offset) == ("-wal", 0) for entry in log) > 1, (
        "the WAL never began anew"
    )
    assert kinds[Told, "started"] == kinds[Told, "ended"] == INSTANCES
    assert kinds[Told, "began"] == INSTANCES * recorded.STEPS


def check_is_sound(cut: PowerCut) -> None:
    """SQLite recovers the files, and nothing in them contradicts itself."""
    together(open_and_close(cut.store))
    assert audit(cut.store) == [], cut.name


@pytest.mark.slow
def test_G11_what_was_acknowledged_survives_every_power_cut(full: Log, tmp_path: Path) -> None:
    dropped = torn = 0
    for number, cut in enumerate(power_cuts(full, tmp_path, IMAGES)):
        check_is_sound(cut)
        assert lost(cut.store, cut.before) == [], cut.name
        if number % FINISH_EVERY == 0:
            check_goes_on(cut.store)
        dropped, torn = dropped + cut.image.dropped, torn + cut.image.torn
    assert dropped > IMAGES
    assert torn > 5, "a run in which a fault never happened is void"


@pytest.mark.slow
def test_a_relaxed_store_may_lose_what_it_acknowledged_and_stays_consistent(tmp_path: Path) -> None:
    log = record(tmp_path, "relaxed")
    check_is_not_void(log)
    losses = 0
    for number, cut in enumerate(power_cuts(log, tmp_path, IMAGES)):
        check_is_sound(cut)
        losses += bool(lost(cut.store, cut.before))
        if number % FINISH_EVERY == 0:
            check_goes_on(cut.store)
    assert losses > IMAGES // 4, "the test cannot see a loss"


@pytest.mark.slow
def test_G11_a_second_power_cut_during_recovery_loses_nothing_either(full: Log, tmp_path: Path) -> None:
    dropped = 0
    for first in power_cuts(full, tmp_path, SECOND_CUTS):
        dropped += check_second(first, record(first.store.parent))
    assert dropped > SECOND_CUTS, "a run in which a fault never happened is void"


def check_second(first: PowerCut, again: Log) -> int:
    """Everything that was told in either life is there after a cut of the second one."""
    dropped = 0
    told = [entry for entry in first.before if isinstance(entry, Told)]
    cuts = list(power_cuts(again, first.store.parent, IMAGES // 10))
    for cut in cuts:
        which = f"{first.name}, then {cut.name}"
        check_is_sound(cut)
        assert lost(cut.store, [*told, *cut.before]) == [], which
        dropped += cut.image.dropped
    check_goes_on(cuts[-1].store)
    return dropped


@pytest.mark.slow
def test_a_disk_that_syncs_nothing_is_found_out(full: Log, tmp_path: Path) -> None:
    """The proof that these tests can fail: the same life, as if no sync had ever reached the disk."""
    lies: Log = [entry for entry in full if not isinstance(entry, Synced)]
    found = 0
    for cut in power_cuts(lies, tmp_path, IMAGES // 4):
        try:
            check_is_sound(cut)
            found += bool(lost(cut.store, cut.before))
        except (AssertionError, hf.HoldfastError):
            found += 1
    assert found > IMAGES // 8


def test_what_was_synced_is_there_and_what_was_not_may_be_missing_or_torn() -> None:
    log: Log = [
        Made("-wal"),
        Wrote("-wal", 0, b"safe"),
        Synced("-wal", 2),
        Wrote("-wal", 4, b"new"),
        Removed("-wal", synced=False),
    ]
    seen = {Disk(log[:4]).cut(Random(seed)).files["-wal"] for seed in range(200)}  # noqa: S311
    assert seen == {b"safe", b"safen", b"safene", b"safenew"}
    assert {"-wal" in Disk(log).cut(Random(seed)).files for seed in range(20)} == {True, False}  # noqa: S311
    assert {"-wal" in Disk(log[:2]).cut(Random(seed)).files for seed in range(20)} == {True, False}  # noqa: S311


def test_a_sync_says_nothing_about_what_was_written_while_it_ran() -> None:
    log: Log = [Made("-wal"), Wrote("-wal", 0, b"a"), Wrote("-wal", 1, b"b"), Synced("-wal", 2)]
    assert {Disk(log).cut(Random(seed)).files["-wal"] for seed in range(50)} == {b"a", b"ab"}  # noqa: S311

"""``holdfast verify`` finds what is wrong with updates (G11): each kind of damage is named by its rule."""

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.scenarios.support import engine_of, rows, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.audit.problems import Rule


@hf.workflow
async def takes() -> None:
    @hf.on_update
    def echo(text: str) -> str:
        return text

    @hf.on_update
    async def waits() -> None:
        await hf.event("never")

    @hf.on_update
    def breaks() -> None:
        raise LookupError

    await hf.event("stop")


async def make(path: Path) -> None:
    """One that is open, one that is closed, and one that nobody has begun: with updates in every state."""
    async with engine_of(path, takes) as engine:
        for name in ("open", "closed"):
            handle = await engine.start(takes, id=name)
            await handle.update("echo", "hello", id="done")
            await handle.update("echo", "x" * 100_000, id="large")
            with pytest.raises(hf.UpdateFailed):
                await handle.update("breaks", id="failed")
            with pytest.raises(hf.errors.UnknownUpdate):
                await handle.update("nope", id="refused")
        waiting = asyncio.create_task(engine.get("open").update("waits", id="at work"))
        await until(lambda: rows(path, "SELECT 1 FROM updates WHERE state = 'accepted'"))
        await engine.get("closed").raise_event("stop")
        await engine.get("closed").result()
        waiting.cancel()
    client = await hf.connect(path)
    handle = await client.start("takes", id="requested")
    with pytest.raises(TimeoutError):
        await handle.update("echo", "hello", id="asked", timeout=0.001)
    await client.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("updates") / "sound.db"
    asyncio.run(make(path))
    return path


EVENT = "UPDATE history SET events = CAST(replace(CAST(events AS TEXT), {}) AS BLOB) WHERE number = ?1"
COMPLETED = '{"event":"update_completed","id":"done","result":{"data":"hello"}}'
FORGED = "UPDATE updates SET answer = CAST('{{\"data\":1}}' AS BLOB) WHERE number = ?1 AND id = '{}'"
AGREE = Rule.UPDATES_AGREE
DAMAGE = [
    (AGREE, "open", "DELETE FROM updates WHERE number = ?1 AND id = 'done'", "was accepted and has no row"),
    (AGREE, "open", "DELETE FROM updates WHERE number = ?1 AND id = 'at work'", "was accepted and has no row"),
    (
        AGREE,
        "open",
        "UPDATE updates SET state = 'failed' WHERE number = ?1 AND id = 'done'",
        "in the history it is done",
    ),
    (
        AGREE,
        "open",
        "UPDATE updates SET state = 'done' WHERE number = ?1 AND id = 'failed'",
        "in the history it is failed",
    ),
    (
        AGREE,
        "open",
        "UPDATE updates SET state = 'asked' WHERE number = ?1 AND id = 'at work'",
        "in the history it still runs",
    ),
    (AGREE, "open", FORGED.format("done"), "not the recorded one"),
    (AGREE, "open", FORGED.format("at work"), "has an answer"),
    (AGREE, "open", "UPDATE updates SET answer = NULL WHERE number = ?1 AND id = 'done'", "has no answer"),
    (AGREE, "open", "UPDATE updates SET answer = x'7b' WHERE number = ?1 AND id = 'done'", "cannot be decoded"),
    (AGREE, "open", "UPDATE updates SET state = 'done' WHERE number = ?1 AND id = 'refused'", "is not in the history"),
    (AGREE, "closed", "INSERT INTO updates VALUES (?1, 'x', 'asked', NULL, NULL, x'')", "an instance that is closed"),
    (AGREE, "open", "INSERT INTO updates VALUES (?1, 'x', 'asked', NULL, NULL, x'')", "is not in the inbox"),
    (AGREE, "requested", "DELETE FROM updates WHERE number = ?1", "is in the inbox and has no row"),
    (AGREE, "closed", EVENT.format(f"',{COMPLETED}', ''"), "ended before its updates"),
    (AGREE, "open", EVENT.format('\'"id":"large"\', \'"id":"done"\''), "accepts update 'done' again"),
    (AGREE, "open", EVENT.format('\'"id":"large"\', \'"id":"done"\''), "which does not run"),
    (Rule.PAYLOADS_THERE, "open", "DELETE FROM payloads WHERE number = ?1", "the answer to update 'large'"),
    (
        Rule.ROWS_READABLE,
        "open",
        "UPDATE updates SET state = 'lost' WHERE number = ?1 AND id = 'done'",
        "unknown state",
    ),
    (Rule.ROWS_READABLE, "open", "UPDATE updates SET answer = 7 WHERE number = ?1 AND id = 'done'", "of updates"),
    (Rule.ROWS_BELONG, "", "UPDATE updates SET number = 99 WHERE number = ?1", "rows of updates belong to instance"),
]


def test_a_store_with_updates_in_every_state_is_sound(sound: Path) -> None:
    assert audit(sound) == []
    states = {state for (state,) in rows(sound, "SELECT state FROM updates")}
    assert states == {"asked", "accepted", "done", "failed", "unknown"}


@pytest.mark.parametrize(("rule", "instance", "statement", "text"), DAMAGE)
def test_G11_damage_to_updates_is_found(
    sound: Path, tmp_path: Path, rule: Rule, instance: str, statement: str, text: str
) -> None:
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        if (source := Path(f"{sound}{suffix}")).exists():
            shutil.copy(source, f"{copy}{suffix}")
    (number,) = rows(copy, "SELECT number FROM instances WHERE id = ?", instance or "open")[0]
    rows(copy, statement, number)
    found = [problem for problem in audit(copy) if problem.rule is rule and text in problem.text]
    assert found, audit(copy)
    assert {problem.instance for problem in found} == {instance}

"""Nothing that the code did in a turn is left out of what is committed."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.crash import apps
from tests.scenarios.support import engine_of, together

import holdfast as hf
from holdfast.core.run import RunEffects, TurnOutput
from holdfast.runtime.platform import FaultPoint
from holdfast.runtime.turns import turn_builder as turns
from holdfast.runtime.turns.turn_builder import Unusual
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.turns import Turn

USUAL = {
    *("number", "execution", "owner", "fence", "turn", "stamp_ms"),
    *("events", "completions", "attempts", "release", "key", "is_plain"),
}
DEFAULTS = dict(zip(Turn.__struct_fields__[-len(Turn.__struct_defaults__) :], Turn.__struct_defaults__, strict=True))


def test_G11_every_field_of_a_turn_is_named_always_or_when_there_is_something_in_it() -> None:
    assert set(Turn.__struct_fields__) == USUAL | set(Unusual.__annotations__)
    assert not USUAL & set(Unusual.__annotations__)


def test_G11_everything_that_the_code_can_do_is_looked_at() -> None:
    source = inspect.getsource(turns)
    assert [part for part in TurnOutput.__slots__ if f"output.{part}" not in source] == []
    assert [part for part in RunEffects.__struct_fields__ if f"effects.{part}" not in source] == []


@pytest.mark.parametrize("workflow", ["sequence", "timers", "cleaning", "streaming", "keeping", "talking", "family"])
@pytest.mark.parametrize("cache_size", [0, 100])
def test_G11_a_turn_is_called_plain_if_it_has_nothing_unusual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workflow: str, cache_size: int
) -> None:
    """What is called plain is written without a look at the rest."""
    monkeypatch.setenv("HOLDFAST_TEST_BODIES", str(tmp_path / "bodies"))
    written: list[Turn] = []

    def note(_: FaultPoint, members: Sequence[Member]) -> None:
        first = (member.first for member in members if isinstance(member, Start))
        written.extend(each for each in (*members, *first) if isinstance(each, Turn))

    async def scenario() -> None:
        everything: list[Any] = [each for each in vars(apps).values() if isinstance(each, hf.Activity | hf.Workflow)]
        async with engine_of(tmp_path / "it.db", *everything, fault_hook=note, cache_size=cache_size) as engine:
            await engine.run(workflow, id="it")

    together(scenario())
    assert written
    for turn in written:
        has_more = any(getattr(turn, name) != DEFAULTS[name] for name in Unusual.__annotations__)
        assert turn.is_plain is not (has_more or turn.release)
    if workflow == "sequence":
        assert any(turn.is_plain for turn in written) is (cache_size > 0)

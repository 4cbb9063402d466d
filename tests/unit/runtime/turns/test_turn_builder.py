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
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.turns import Turn, TurnEffects


def test_G11_every_effect_of_a_turn_is_named() -> None:
    source = inspect.getsource(turns)
    assert [part for part in TurnEffects.__struct_fields__ if f"{part}=" not in source] == []


def test_G11_everything_that_the_code_can_do_is_looked_at() -> None:
    source = inspect.getsource(turns)
    assert [part for part in TurnOutput.__slots__ if f"output.{part}" not in source] == []
    assert [part for part in RunEffects.__struct_fields__ if f"effects.{part}" not in source] == []


@pytest.mark.parametrize("workflow", ["sequence", "timers", "cleaning", "streaming", "keeping", "talking", "family"])
@pytest.mark.parametrize("cache_size", [0, 100])
def test_G11_a_turn_has_effects_only_if_it_did_something_unusual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workflow: str, cache_size: int
) -> None:
    """A turn without effects is written without a look at them."""
    monkeypatch.setenv("HOLDFAST_TEST_BODIES", str(tmp_path / "bodies"))
    written: list[Turn] = []

    def note(_: FaultPoint, members: Sequence[Member]) -> None:
        first = (member.first for member in members if isinstance(member, Start))
        written.extend(each for each in (*members, *first) if isinstance(each, Turn))

    async def scenario() -> None:
        values = [each for name, each in vars(apps).items() if name != "before_patches"]  # the former code of a name
        everything: list[Any] = [each for each in values if isinstance(each, hf.Activity | hf.Workflow)]
        async with engine_of(tmp_path / "it.db", *everything, fault_hook=note, cache_size=cache_size) as engine:
            await engine.run(workflow, id="it")

    together(scenario())
    effects = [turn.effects for turn in written]
    assert any(each is not None and each.close is not None for each in effects)
    assert (cache_size == 0) == all(each is not None and each.release for each in effects)
    if workflow == "sequence" and cache_size:
        last = max(turn.turn for turn in written)
        assert all((turn.effects is None) == (turn.turn < last) for turn in written)

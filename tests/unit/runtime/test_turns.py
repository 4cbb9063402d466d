"""Nothing that the code did in a turn is left out of what is committed."""

import inspect

from holdfast.replay.output import Output
from holdfast.runtime import turns
from holdfast.runtime.turns import Unusual
from holdfast.storage.contract import Turn

USUAL = {
    *("number", "execution", "owner", "fence", "turn", "stamp_ms"),
    *("events", "completions", "attempts", "release", "key"),
}


def test_G11_every_field_of_a_turn_is_named_always_or_when_there_is_something_in_it() -> None:
    assert set(Turn.__struct_fields__) == USUAL | set(Unusual.__annotations__)
    assert not USUAL & set(Unusual.__annotations__)


def test_G11_everything_that_the_code_can_do_is_looked_at() -> None:
    source = inspect.getsource(turns)
    assert [part for part in Output.__slots__ if f"output.{part}" not in source] == []

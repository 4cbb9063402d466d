"""What an engine knows of its code: the exceptions that it can name, and a fingerprint that stays the same."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.scenarios.support import engine_of, together
from tests.unit.authoring import declined
from tests.unit.authoring.declined import Declined

import holdfast as hf
from holdfast.authoring.registry import Registry, known_errors

ONE = hf.Retry(attempts=1)


@hf.activity(retry=ONE)
async def charge(card: str) -> str:
    if card == "bad":
        raise Declined(402, card=card)
    if card == "early":
        raise declined.Bank.Closed("at night")
    raise asyncio.QueueFull


@hf.workflow
async def checkout(card: str) -> str:
    try:
        return await charge(card)
    except Declined as error:
        return f"{error}: {error.code} {error.card}"
    except declined.Bank.Closed as error:
        return f"closed {error}"
    except asyncio.QueueFull:
        return "full"


def test_code_catches_exceptions_that_it_imported_from_modules_which_are_not_registered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", checkout, charge) as engine:
            assert await engine.run(checkout, "bad") == "declined with 402: 402 bad"
            assert await engine.run(checkout, "early") == "closed at night"
            assert await engine.run(checkout, "other") == "full"

    together(scenario())


def test_an_exception_type_that_code_cannot_name_is_unknown() -> None:
    registry = Registry(workflows=[checkout])
    assert registry.resolve("tests.unit.authoring.declined.Declined") is Declined
    assert registry.resolve("holdfast.errors.WorkerLost") is hf.WorkerLost
    assert registry.resolve("builtins.KeyError") is KeyError
    for name in ("hypothesis.errors.InvalidArgument", "tests.unit.authoring.declined.Bank", "os.system", "", "."):
        assert registry.resolve(name) is None


def test_modules_and_objects_that_do_something_when_they_are_asked_are_not_asked() -> None:
    class Touchy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    def asked(self: object) -> type:
        raise AssertionError(f"asked a {type(self).__name__} for its class")

    Proxy = type("Proxy", (), {"__class__": property(asked)})  # noqa: N806 - an object that stands for another

    module = ModuleType("odd")
    vars(module).update(touchy=Touchy("odd.touchy"), proxy=Proxy(), Declined=Declined)
    assert list(known_errors([module]).values()) == [Declined]


PROGRAM = """
import holdfast as hf
from holdfast.authoring.registry import Registry

async def sizes(size: str) -> bool:
    return size in {"small", "medium", "large", "huge"} or size in ("a", "b")

print(Registry(workflows=[hf.workflow(sizes)]).build)
"""


@pytest.mark.slow
def test_G12_the_same_code_is_the_same_build_in_every_process() -> None:
    """A set of constants is shown in another order by another process; else every restart would be a new build."""
    builds = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(builds) == 1


def test_G12_a_changed_constant_is_another_build() -> None:
    async def one(size: str) -> bool:
        return size in {"small", "large"}

    async def other(size: str) -> bool:
        return size in {"small", "medium"}

    builds = {Registry(workflows=[hf.workflow(name="sizes")(code)]).build for code in (one, other)}
    assert len(builds) == 2


def test_a_method_is_refused_by_the_decorator_and_a_static_one_is_not() -> None:
    class Mail:
        @classmethod
        def build(cls) -> None: ...

        async def run(self) -> None: ...

    with pytest.raises(hf.errors.InvalidOption, match=r"Mail.build is a method.*function at module level"):
        hf.activity(queue="slow")(vars(Mail)["build"].__func__)
    with pytest.raises(hf.errors.InvalidOption, match=r"Mail.run is a method"):
        hf.workflow(Mail.run)

    class Tools:
        @staticmethod
        @hf.activity
        async def double(number: int) -> int:
            return 2 * number

    @hf.workflow
    async def work() -> int:
        return await Tools.double(21)

    async def scenario() -> int:
        async with hf.Engine(":memory:", workflows=[work], activities=[Tools.double]) as engine:
            return await engine.run(work)

    assert asyncio.run(scenario()) == 42


def test_a_function_inside_a_function_may_call_its_first_parameter_self() -> None:
    @hf.activity
    async def label(self: str) -> str:
        return self

    assert label.name == "label"

"""Bad input at the engine's edge: a typed error that names the thing, and nothing stored."""

import functools
import gc
import math
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.scenarios.support import engine_of, rows, together

import holdfast as hf
from holdfast.authoring.validation import checked_name
from holdfast.core.filters import quoted
from holdfast.errors import AnnotationError, ArgumentError, PayloadTooLarge, UnknownWord


@hf.activity
async def echo(value: Any) -> Any:
    return value


@hf.workflow
async def keeps(value: Any) -> Any:
    return value


@hf.workflow
async def counts(number: int, text: str = "") -> int:
    return number + len(text)


ALL = (echo, keeps, counts)

BAD_NAMES = {
    "empty": "",
    "blank": "  ",
    "spaces around": " a ",
    "over-long": "x" * 256,
    "over-long in bytes": "ä" * 128,
    "NUL": "a\0b",
    "lone surrogate": "a\ud800",
    "control": "a\x07b",
    "newline": "a\nb",
    "bidirectional": "a\u202eb",
    "zero width": "a\u200bb",
    "no text": 7,
    "none": None,
    "bytes": b"a",
}
GOOD_NAMES = [
    "x" * 255,
    "../../etc/passwd",
    "%2F",
    "'; DROP TABLE instances; --",
    "<script>",
    "%",
    "_",
    "Bestellung 42 äöü",
]


def nothing_is_stored(path: Path) -> None:
    for table in ("instances", "history", "attempts", "inbox", "payloads"):
        assert rows(path, f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608 - a name from above


@pytest.mark.parametrize(
    "name", [value for value in BAD_NAMES.values() if value is not None], ids=lambda value: ascii(value)[:20]
)
def test_a_bad_id_is_refused_and_nothing_is_stored(tmp_path: Path, name: Any) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            with pytest.raises(hf.InvalidId):
                await engine.start(keeps, 1, id=name)
            with pytest.raises(hf.InvalidId):
                engine.get(name)
            nothing_is_stored(path)

    together(scenario())


@pytest.mark.parametrize("letter", ["x", "\u00e4", " ", "\n"], ids=["ASCII", "Unicode", "blank", "newline"])
def test_the_length_of_an_id_is_checked_before_its_characters(letter: str) -> None:
    """Looking at each of ten million characters would block the event loop for seconds."""
    looked: list[str] = []

    class Long(str):
        __slots__ = ()

        def __iter__(self) -> Any:
            looked.append("character")
            return super().__iter__()

        def isprintable(self) -> bool:
            looked.append("isprintable")
            return super().isprintable()

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            looked.append("encode")
            return super().encode(encoding, errors)

    with pytest.raises(hf.InvalidId, match="at most 255 bytes") as refused:
        checked_name(Long(letter * 10_000_000), "an instance")
    assert looked == []
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("name", GOOD_NAMES, ids=lambda value: ascii(value)[:20])
def test_an_odd_but_harmless_id_is_only_an_id(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            assert await engine.run(keeps, name, id=name) == name
            assert (await engine.get(name).describe()).id == name
            assert [record.id for record in await engine.list(f"id = {quoted(name)}")] == [name]
            assert await engine.list(f"workflow = {quoted(name)}") == []

    together(scenario())


@pytest.mark.parametrize(
    "name", [value for value in BAD_NAMES.values() if value is not None], ids=lambda value: ascii(value)[:20]
)
def test_bad_names_of_definitions_and_queues_are_refused_where_they_are_written(name: Any) -> None:
    async def body() -> None: ...

    for mark in (hf.activity(name=name), hf.workflow(name=name)) if isinstance(name, str) else ():
        with pytest.raises(hf.InvalidId):
            mark(body)
    with pytest.raises(hf.InvalidId, match="queue"):
        hf.activity(queue=name)
    with pytest.raises(hf.InvalidId, match="queue"):
        hf.Engine(":memory:", queues=[name])


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        {"a": {1, object()}},
        object(),
        {1: "a", (2, 3): "b"},
        10**4400,
        "lone \ud800",
    ],
    ids=["nan", "inf", "-inf", "set", "object", "keys", "digits", "surrogate"],
)
def test_what_json_cannot_hold_is_refused_at_the_call(tmp_path: Path, value: Any) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            with pytest.raises(hf.PayloadError):
                await engine.start(keeps, value, id="a")
            with pytest.raises(hf.PayloadError):
                await engine.start("somewhere-else", value, id="a")
            nothing_is_stored(path)

    together(scenario())


def test_a_payload_above_the_limit_or_too_deep_is_refused(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, payload_limit=1_000_000) as engine:
            with pytest.raises(PayloadTooLarge, match="bytes"):
                await engine.start(keeps, "x" * 3_000_000, id="a")
            for value in (deep, endless):
                with pytest.raises(hf.PayloadError):
                    await engine.start(keeps, value, id="a")
            nothing_is_stored(path)

    together(scenario())


def test_none_is_a_value_and_a_missing_argument_is_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            with pytest.raises(ArgumentError, match="value"):
                await engine.start("keeps", id="missing")
            with pytest.raises(ArgumentError, match="number"):
                await engine.start("counts", "seven", id="wrong type")
            with pytest.raises(ArgumentError):
                await engine.start("counts", 7, "a", "b", id="too many")
            with pytest.raises(ArgumentError, match="unknown"):
                counts.bind(7, unknown=1)  # type: ignore[call-arg]  # wrong on purpose
            nothing_is_stored(path)
            assert await engine.run(keeps, None, id="none") is None

    together(scenario())


def test_what_is_no_workflow_is_refused(tmp_path: Path) -> None:
    async def plain() -> None: ...

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            things: tuple[Any, ...] = (plain, 7, None, echo)
            for thing in things:
                with pytest.raises(hf.errors.UsageError):
                    await engine.start(thing, id="a")
            with pytest.raises(hf.InvalidId):
                await engine.start("", id="a")
            nothing_is_stored(tmp_path / "shop.db")

    together(scenario())


@pytest.mark.parametrize("policy", ["", "replace", 7])
def test_an_unknown_policy_status_or_page_is_a_typed_error(tmp_path: Path, policy: Any) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            with pytest.raises(UnknownWord):
                await engine.start(keeps, 1, id="a", policy=policy)
            with pytest.raises(UnknownWord), pytest.warns(DeprecationWarning, match="in this release only"):
                await engine.list(state=policy)
            for limit in (0, -1, 10**9, 2**70):
                with pytest.raises(hf.errors.InvalidOption, match="limit"):
                    await engine.list(limit=limit)
            with (
                pytest.raises(hf.errors.InvalidOption, match="before"),
                pytest.warns(DeprecationWarning, match="in this release only"),
            ):
                await engine.list(before=2**70)
            nothing_is_stored(path)

    together(scenario())


BAD_TIMES = [-1, -0.001, math.nan, math.inf, 1e300, "5", True, timedelta(days=-1), timedelta(days=40_000)]


@pytest.mark.parametrize("time", BAD_TIMES, ids=str)
def test_senseless_durations_are_refused_where_they_are_written(time: Any) -> None:
    for option in ("start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat"):
        with pytest.raises(hf.errors.InvalidOption, match=option):
            hf.activity(**{option: time})
    for option in ("initial", "maximum"):
        with pytest.raises(hf.errors.InvalidOption, match=option):
            hf.Retry(**{option: time})
    with pytest.raises(hf.errors.InvalidOption, match="lease"):
        hf.Engine(":memory:", lease=time)

    async def scenario() -> None:
        async with engine_of(":memory:", *ALL) as engine:
            await engine.run(keeps, 1, id="a")
            with pytest.raises(hf.errors.InvalidOption, match="timeout"):
                await engine.get("a").result(timeout=time)

    together(scenario())


@pytest.mark.parametrize("option", ["start_to_close", "schedule_to_start", "schedule_to_close", "heartbeat"])
def test_a_time_out_of_zero_is_refused(option: str) -> None:
    with pytest.raises(hf.errors.InvalidOption, match=option):
        hf.activity(**{option: 0})  # type: ignore[call-overload]  # by its name


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": 1.5},
        {"attempts": True},
        {"attempts": "3"},
        {"attempts": 2**40},
        {"backoff": 0.5},
        {"backoff": math.nan},
        {"backoff": "2"},
        {"initial": 10, "maximum": 1},
        {"initial": 100},
        {"jitter": "no"},
        {"non_retryable": ValueError},
        {"non_retryable": "ValueError"},
        {"non_retryable": ("",)},
        {"non_retryable": ("shop Declined",)},
        {"non_retryable": ("a" * 300,)},
        {"non_retryable": (int,)},
    ],
    ids=str,
)
def test_a_senseless_retry_policy_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(hf.errors.InvalidOption, match="|".join(options)):
        hf.Retry(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"retry": 3},
        {"max_losses": -1},
        {"max_losses": "5"},
        {"max_losses": 2**40},
        {"rerun_after_loss": "no"},
        {"process": 1},
        {"resumable": "yes"},
    ],
    ids=str,
)
def test_senseless_options_of_an_activity_are_refused_where_they_are_written(options: dict[str, Any]) -> None:
    """What is stored with an attempt must be readable when the attempt ends."""
    with pytest.raises(hf.errors.InvalidOption, match="|".join(options)):
        hf.activity(**options)


@pytest.mark.parametrize("number", [0, -1, 1.5, "7", None, True, 2**40])
def test_senseless_options_of_a_workflow_are_refused_where_they_are_written(number: Any) -> None:
    for option in ("mailbox_limit", "continue_after"):
        with pytest.raises(hf.errors.InvalidOption, match=option):
            hf.workflow(**{option: number})
    versions: tuple[Any, ...] = (3, None, "a\0b", "x" * 300, " ")
    for version in versions:
        with pytest.raises(hf.InvalidId, match="version"):
            hf.workflow(version=version)


@pytest.mark.parametrize(
    "options",
    [
        {"max_activities": 0},
        {"max_activities": "7"},
        {"cache_size": -1},
        {"cache_size": None},
        {"durability": "none"},
        {"lease": 0},
        {"lease": None},
        {"lease": 0.1},
        {"lease": 0.999},
        {"lease": timedelta(milliseconds=999)},
        {"lease": 3_600.5},
        {"lease": 1e9},
        {"lease": True},
        {"queues": "default"},
        {"queues": 7},
        {"workflows": keeps},
        {"activities": echo},
        {"modules": math},
        {"store": ""},
        {"store": "a\0b"},
        {"store": None},
        {"store": b"shop.db"},
    ],
    ids=str,
)
def test_senseless_engine_options_are_refused(options: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"store": ":memory:"} | options
    with pytest.raises(hf.errors.InvalidOption, match="|".join(options)):
        hf.Engine(**arguments)


def test_an_engine_that_runs_is_not_entered_again() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", *ALL) as engine:
            with pytest.raises(hf.errors.UsageError, match="is open already"):
                await engine.__aenter__()
            assert await engine.run(keeps, 1) == 1

    together(scenario())


def test_a_forgotten_await_is_named(tmp_path: Path) -> None:
    @hf.workflow
    async def forgets() -> int:
        return echo(1)  # type: ignore[return-value]  # wrong on purpose

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, forgets) as engine:
            with pytest.raises(hf.WorkflowFailed, match="expected int, found coroutine; is an `await` missing"):
                await engine.run(forgets)
        gc.collect()

    with pytest.warns(RuntimeWarning, match="never awaited"):
        together(scenario())


@pytest.mark.parametrize("event", ["go", ("go",), ("go", 1, 2), ["go", 1], 7], ids=str)
def test_an_event_with_the_start_that_is_no_pair_is_refused(tmp_path: Path, event: Any) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            with pytest.raises(hf.errors.InvalidOption, match="event"):
                await engine.start(keeps, 1, id="a", event=event)
            nothing_is_stored(tmp_path / "shop.db")

    together(scenario())


@pytest.mark.parametrize(
    "options", [{"limit": "7"}, {"limit": 1.5}, {"before": "1"}, {"before": -1}, {"order": "id"}, {"order": 7}], ids=str
)
def test_a_page_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", *ALL) as engine:
            warned = (
                pytest.warns(DeprecationWarning, match="in this release only") if "before" in options else nullcontext()
            )
            with pytest.raises(hf.errors.InvalidOption, match="|".join(options)), warned:
                await engine.list(**options)
            for name in ("", 7, "a\ud800"):
                with (
                    pytest.raises(hf.InvalidId, match="workflow"),
                    pytest.warns(DeprecationWarning, match="in this release only"),
                ):
                    await engine.list(workflow=name)  # type: ignore[arg-type]  # wrong on purpose

    together(scenario())


def test_what_is_no_definition_is_refused_by_the_registry(tmp_path: Path) -> None:
    async def plain() -> None: ...

    mistakes: tuple[dict[str, Any], ...] = (
        {"workflows": [plain]},
        {"workflows": [echo]},
        {"activities": [keeps]},
        {"modules": [SimpleNamespace()]},
    )
    for wrong in mistakes:
        with pytest.raises(hf.errors.UsageError):
            hf.Engine(tmp_path / "shop.db", **wrong)
    with pytest.raises(hf.errors.InvalidOption, match="async def"):
        hf.workflow(lambda: None)  # type: ignore[arg-type,return-value]  # wrong on purpose
    with pytest.raises(hf.errors.InvalidOption, match="function"):
        hf.activity(7)  # type: ignore[call-overload]  # wrong on purpose

    class Odd:
        """No type that JSON has."""

    async def takes_odd(odd: Odd) -> None: ...

    with pytest.raises(AnnotationError):
        hf.Engine(tmp_path / "shop.db", activities=[hf.activity(takes_odd)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lease", [1, 3_600, timedelta(hours=1), 8.0])
def test_W1_leases_within_the_bounds_are_taken(lease: Any) -> None:
    hf.Engine(":memory:", lease=lease)


def test_W1_the_message_about_a_lease_names_the_bounds() -> None:
    with pytest.raises(hf.errors.InvalidOption, match=r"^lease must be 1 to 3,600 seconds, not 0$"):
        hf.Engine(":memory:", lease=0)


def test_arguments_by_keyword_are_refused_with_the_way_to_bind_them() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", *ALL) as engine:
            call: Any = engine.run
            with pytest.raises(
                hf.errors.UsageError, match=r"not number, text; .* write run\(counts\.bind\(number=\.\.\., text"
            ):
                await call(counts, number=1, text="ab", id="a")
            call = engine.start
            with pytest.raises(
                hf.errors.UsageError,
                match=r"takes id, policy, event, .*, attributes, update and update_id by keyword, not polcy;",
            ):
                await call(counts, 1, polcy="reuse")
            assert await engine.list() == []
            assert await engine.run(counts.bind(number=1, text="ab"), id="a") == 3

    together(scenario())


class Shop:
    async def pack(self, item: str) -> str:
        return item


REMEDIES: dict[str, tuple[Any, str]] = {
    "partial": (
        functools.partial(echo.fn, 1),
        r"partial of echo.*write a function that calls echo with these arguments",
    ),
    "class": (Shop, r"Shop is not a function written with def; write a function that calls Shop"),
    "builtin": (print, r"print is not a function written with def; write a function that calls print"),
    "number": (7, r"7 is not a function; write one"),
}


def test_a_method_of_an_object_that_is_not_marked_in_its_class_is_refused() -> None:
    remedy = r"Shop\.pack is a method of an object; mark it in its class with @hf\.activity.*or write a function"
    with pytest.raises(hf.errors.InvalidOption, match=remedy):
        hf.activity(Shop().pack)
    with pytest.raises(hf.errors.UsageError, match=remedy):
        hf.Engine(":memory:", activities=[Shop().pack])


@pytest.mark.parametrize("name", REMEDIES)
def test_what_is_no_function_is_refused_with_what_to_write(name: str) -> None:
    given, remedy = REMEDIES[name]
    with pytest.raises(hf.errors.InvalidOption, match=remedy):
        hf.activity(given)
    with pytest.raises(hf.errors.UsageError, match=rf"{remedy}.*, and mark it with @hf\.activity"):
        hf.Engine(":memory:", activities=[given])


def test_definitions_that_are_not_marked_or_in_the_wrong_list_say_what_to_write() -> None:
    async def plain() -> None: ...

    unmarked: Any = plain
    with pytest.raises(hf.errors.UsageError, match=r"plain is not marked; write @hf\.workflow above it"):
        hf.Engine(":memory:", workflows=[unmarked])
    activity: Any = echo
    with pytest.raises(hf.errors.UsageError, match=r"is marked with @hf\.activity; give it as activities="):
        hf.Engine(":memory:", workflows=[activity])
    workflow: Any = keeps
    with pytest.raises(hf.errors.UsageError, match=r"is marked with @hf\.workflow; give it as workflows="):
        hf.Engine(":memory:", activities=[workflow])


def test_a_forgotten_await_names_the_activity_or_the_child() -> None:
    @hf.workflow
    async def forgets(which: str) -> None:
        if which == "echo":
            echo(1)  # type: ignore[unused-coroutine]
        else:
            keeps(1)  # type: ignore[unused-coroutine]

    def forget_outside() -> None:
        echo(1)  # type: ignore[unused-coroutine]

    async def scenario() -> None:
        async with engine_of(":memory:", *ALL, forgets) as engine:
            for which in ("echo", "keeps"):
                with pytest.warns(RuntimeWarning, match=f"coroutine '{which}' was never awaited"):
                    await engine.run(forgets, which)
        with pytest.warns(RuntimeWarning, match="coroutine 'echo' was never awaited"):
            forget_outside()

    together(scenario())

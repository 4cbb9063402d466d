"""Exceptions as data, and back as what they were."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import msgspec
import pytest

from holdfast.errors import RemoteError, RetryAfter
from holdfast.payloads import failures
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.failures import RecordedFailure, failure_of, qualified_name, resolve_builtin, to_exception
from holdfast.payloads.limits import (
    ARGUMENTS_LIMIT_BYTES,
    ARGUMENTS_MAX_DEPTH,
    FAILURES_LIMIT,
    MESSAGE_LIMIT_CHARACTERS,
    TRACEBACK_LIMIT_CHARACTERS,
)


class Declined(Exception):
    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason


class Wrapped(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass
class Data(Exception):
    number: int


class MyOSError(OSError):
    def __init__(self, place: str) -> None:
        super().__init__(2, "no")
        self.place = place


class Booby(Exception):
    ran = 0

    def __new__(cls, *_args: Any) -> Self:
        cls.ran += 1
        return super().__new__(cls)

    def __init__(self, *args: Any) -> None:
        type(self).ran += 1
        super().__init__(*args)


class Silent(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class MyGroup(ExceptionGroup[Exception]):
    pass


KNOWN = {qualified_name(cls): cls for cls in (Declined, Wrapped, Data, MyOSError, Booby, Silent, MyGroup)}


def resolve(name: str) -> type[BaseException] | None:
    return KNOWN.get(name) or resolve_builtin(name)


def there_and_back(exception: BaseException) -> Exception:
    stored = msgspec.json.encode(failure_of(exception))
    return to_exception(msgspec.json.decode(stored, type=RecordedFailure), resolve)


@pytest.mark.parametrize(
    "exception",
    [
        KeyError("x"),
        KeyError(),
        ValueError("a", 1, None, {"b": [2]}),
        OSError(2, "no"),
        OSError(13, "no", "file"),
        OSError("text"),
        Declined(51, "no funds"),
        Declined(51, reason="no funds"),
        Wrapped(3, detail="x"),
        Data(4),
        Data(number=4),
        MyOSError("here"),
        ZeroDivisionError("by zero"),
        TimeoutError(),
    ],
)
def test_an_exception_comes_back_with_type_arguments_and_attributes(exception: Exception) -> None:
    back = there_and_back(exception)
    assert type(back) is type(exception)
    assert back.args == exception.args
    assert vars(back) == vars(exception)
    assert str(back) == str(exception)
    if isinstance(exception, OSError) and isinstance(back, OSError):
        assert (back.errno, back.strerror, back.filename) == (
            exception.errno,
            exception.strerror,
            exception.filename,
        )


def test_no_code_of_the_exception_runs_when_it_is_made_again() -> None:
    exception = Booby("a")
    before = Booby.ran
    assert there_and_back(exception).args == ("a",)
    assert Booby.ran == before


def test_an_unknown_type_becomes_a_remote_error_that_keeps_the_name() -> None:
    back = to_exception(RecordedFailure(type="shop.Declined", message="no funds"), resolve)
    assert type(back) is RemoteError
    assert back.type_name == "shop.Declined"
    assert str(back) == "no funds"
    assert back.__notes__ == ["Its type was shop.Declined, which is not known here"]
    again = to_exception(failure_of(back), {qualified_name(RemoteError): RemoteError}.get)
    assert isinstance(again, RemoteError)
    assert (again.type_name, again.__notes__) == (back.type_name, back.__notes__)


def test_a_remote_error_keeps_the_attributes_that_the_original_had() -> None:
    declined = type("FromElsewhere", (Exception,), {})("no funds")
    vars(declined).update(code=51, retry_at=None, card=object(), log="x" * 1_000_000)
    back = to_exception(failure_of(declined), resolve)
    assert isinstance(back, RemoteError)
    assert back.attributes == {"code": 51, "retry_at": None}
    again = to_exception(failure_of(back), {qualified_name(RemoteError): RemoteError}.get)
    assert isinstance(again, RemoteError)
    assert again.attributes == back.attributes


def test_a_remote_error_that_was_recorded_without_attributes_has_none() -> None:
    recorded = RecordedFailure(
        type=qualified_name(RemoteError), message="no", arguments=["no"], attributes={"type_name": "shop.Declined"}
    )
    back = to_exception(recorded, {qualified_name(RemoteError): RemoteError}.get)
    assert isinstance(back, RemoteError)
    assert (back.type_name, dict(back.attributes)) == ("shop.Declined", {})


@pytest.mark.parametrize("name", ["os.system", "builtins.print", "builtins.int", "builtins.__import__", "KeyError", ""])
def test_a_name_from_data_finds_only_builtin_exceptions(name: str) -> None:
    assert resolve_builtin(name) is None


@pytest.mark.parametrize(
    "exception",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), StopAsyncIteration()],
)
def test_what_would_end_the_program_or_the_coroutine_becomes_a_remote_error(exception: BaseException) -> None:
    back = there_and_back(exception)
    assert isinstance(back, RemoteError)
    assert back.type_name == qualified_name(type(exception))


def test_arguments_that_json_cannot_hold_leave_the_type_and_the_message() -> None:
    exception = ValueError({1, 2})
    assert failure_of(exception).arguments is None
    back = there_and_back(exception)
    assert type(back) is ValueError
    assert back.args == ("{1, 2}",)
    undecodable = there_and_back(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"))
    assert isinstance(undecodable, RemoteError)
    assert "can't decode" in str(undecodable)


def chain(exception: Exception, cause: Exception | None, context: Exception | None) -> None:
    try:
        raise context or cause or KeyError
    except (KeyError, IndexError):
        if context is not None:
            raise exception  # noqa: B904  the context is what is tested
        raise exception from cause


def raised(exception: Exception, cause: Exception | None = None, context: Exception | None = None) -> Exception:
    """`exception` with a traceback, and chained as Python would chain it."""
    with pytest.raises(type(exception)) as caught:
        chain(exception, cause, context)
    return caught.value


def members(exception: BaseException) -> list[Exception]:
    assert isinstance(exception, ExceptionGroup)
    return list(cast("ExceptionGroup[Exception]", exception).exceptions)


def test_causes_and_contexts_come_back_as_causes() -> None:
    explicit = there_and_back(raised(ValueError("top"), cause=KeyError("below")))
    assert repr(explicit.__cause__) == "KeyError('below')"
    implicit = there_and_back(raised(ValueError("top"), context=IndexError("below")))
    assert repr(implicit.__cause__) == "IndexError('below')"


def test_a_suppressed_context_is_left_out() -> None:
    exception = raised(ValueError("top"), context=IndexError("below"))
    exception.__suppress_context__ = True
    assert failure_of(exception).cause is None


def test_the_recorded_traceback_and_notes_are_notes() -> None:
    exception = raised(ValueError("x"))
    exception.add_note("hint")
    notes = there_and_back(exception).__notes__
    assert notes[0] == "hint"
    assert notes[1].startswith("Recorded traceback")
    assert "in chain" in notes[1]


def test_the_recorded_traceback_begins_with_the_user_s_code() -> None:
    def ours() -> None:
        msgspec.json.decode("{}", type=int)

    source = str(Path(failures.__file__).with_name("invented.py"))
    frames: dict[str, Any] = {"ours": ours}
    exec(compile("def engine():\n    ours()", source, "exec"), frames)  # noqa: S102 - a frame in our own folder
    with pytest.raises(msgspec.ValidationError) as caught:
        frames["engine"]()
    while caught.value.__traceback__ is not None and caught.value.__traceback__.tb_frame.f_code.co_name != "engine":
        caught.value.__traceback__ = caught.value.__traceback__.tb_next
    recorded = failure_of(caught.value).traceback
    assert "in ours" in recorded
    assert "invented.py" not in recorded


def test_a_cyclic_chain_ends() -> None:
    one, two = ValueError("one"), KeyError("two")
    one.__cause__, two.__cause__ = two, one
    failure = failure_of(one)
    assert failure.cause is not None
    assert failure.cause.cause is None


def test_a_long_chain_is_cut() -> None:
    top = ValueError("top")
    current: BaseException = top
    for number in range(5 * FAILURES_LIMIT):
        current.__cause__ = ValueError(str(number))
        current = current.__cause__
    length, failure = 0, failure_of(top)
    while failure.cause is not None:
        length, failure = length + 1, failure.cause
    assert length == FAILURES_LIMIT - 1


def test_a_huge_exception_is_cut_in_every_part() -> None:
    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        raise ValueError("m" * 100_000_000, ["n" * 1_000_000])

    with pytest.raises(ValueError, match="m") as caught:
        deep(200)
    vars(caught.value)["attribute"] = "a" * 1_000_000
    failure = failure_of(caught.value)
    assert failure.arguments is None
    assert failure.attributes == {}
    assert len(failure.message) < MESSAGE_LIMIT_CHARACTERS + 100
    assert "left out" in failure.message
    assert len(failure.traceback) < TRACEBACK_LIMIT_CHARACTERS + 100
    assert len(msgspec.json.encode(failure)) < ARGUMENTS_LIMIT_BYTES * 4


def test_groups_come_back_with_their_members() -> None:
    group = ExceptionGroup("several", [KeyError("a"), ExceptionGroup("inner", [Declined(1, "b")])])
    back = there_and_back(group)
    assert str(back) == "several (2 sub-exceptions)"
    first, inner = members(back)
    assert repr(first) == "KeyError('a')"
    assert isinstance(members(inner)[0], Declined)
    assert type(there_and_back(MyGroup("mine", [KeyError("a")]))) is MyGroup


def test_a_group_of_the_last_resort_is_an_ordinary_group() -> None:
    back = there_and_back(BaseExceptionGroup("stop", [SystemExit(1)]))
    assert isinstance(members(back)[0], RemoteError)


def test_a_huge_group_is_cut_with_a_note() -> None:
    failure = failure_of(ExceptionGroup("many", [ValueError(str(number)) for number in range(10_000)]))
    assert len(failure.members) == FAILURES_LIMIT - 1
    assert "were left out" in failure.notes[0]


def test_the_deepest_failure_can_be_stored_as_a_payload() -> None:
    arguments: Any = 1
    for _ in range(ARGUMENTS_MAX_DEPTH - 1):
        arguments = [arguments]
    exception: Any = ValueError(arguments)
    for _ in range(FAILURES_LIMIT - 1):
        exception = ExceptionGroup("group", [exception])
    failure = failure_of(exception)
    assert decode(encode(failure, RecordedFailure), RecordedFailure) == failure
    innermost = failure
    while innermost.members:
        innermost = innermost.members[0]
    assert innermost.arguments == [arguments]


def test_a_str_that_raises_is_reported_in_the_message() -> None:
    assert failure_of(Silent()).message == "<str() of Silent raised KeyError>"


def test_texts_are_cleaned_of_what_cannot_be_stored() -> None:
    failure = failure_of(ValueError("a\0b\ud800c"))
    assert failure.message == "a?b?c"
    assert failure.arguments is None
    msgspec.json.encode(failure)


def test_the_decisions_of_the_caller_are_kept() -> None:
    failure = failure_of(RetryAfter(1.5), retryable=False)
    assert failure.retryable is False
    assert failure.next_delay_seconds == 1.5

"""The function of an activity: a function, a method or a generator, and the options that fit it.

The checks run where the activity is declared, and again where a call has options of its own.
"""

import dis
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Final, get_origin

from msgspec.structs import replace

from holdfast.authoring.definition import not_a_function, receiver_name, refuse_method
from holdfast.authoring.prepare import checked_prepare
from holdfast.core.activity_options import ActivityOptions, OnCancel, StreamOptions
from holdfast.errors import InvalidOption


class _NoObject:
    """The object of methods that are not bound yet."""


NO_OBJECT: Final = _NoObject()


def is_method(function: Callable[..., Any]) -> bool:
    """Whether it is a function of a class whose first parameter is the object."""
    return inspect.isfunction(function) and receiver_name(function) == "self"


def without_object(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method with the parameters of its callers, who do not pass the object."""
    return MethodType(function, NO_OBJECT)


def has_object(function: Callable[..., Any]) -> bool:
    """Whether its calls need an object: it is a method, in its class or of an object."""
    return inspect.ismethod(function) or is_method(function)


def _is_stream(function: Callable[..., Any], *, is_external: bool) -> bool:
    """Whether it delivers values: it is a generator, or an external function that is annotated as one."""
    if not is_external:
        return inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    annotation = function.__annotations__.get("return")
    name = annotation if isinstance(annotation, str) else getattr(get_origin(annotation), "__name__", "")
    return name.partition("[")[0].rpartition(".")[2] in ("AsyncIterator", "AsyncGenerator", "AsyncIterable")


def check_external(function: FunctionType, options: ActivityOptions, *, process: bool) -> None:
    """Refuse an external activity that has a body, or that nothing would end if its executor were lost (C4)."""
    name = function.__qualname__
    if options.heartbeat_ms is None and options.start_to_close_ms is None:
        raise InvalidOption(
            f"{name}: an external activity needs heartbeat= or start_to_close=; without them nothing ends an attempt "
            "whose executor was lost"
        )
    if process or options.prepares:
        option = "process=True" if process else "prepare="
        raise InvalidOption(f"{name}: {option} is for functions that a worker runs, not for external ones")
    is_plain = BODYLESS.issuperset(step.opname for step in dis.get_instructions(function))
    if not is_plain or not {NOT_IMPLEMENTED}.issuperset(function.__code__.co_names):
        raise InvalidOption(
            f"{name}: an external activity has no body here; write `...` or, for type checkers, "
            f"`raise {NOT_IMPLEMENTED}`"
        )


BODYLESS: Final = frozenset(
    {
        *("RESUME", "RETURN_GENERATOR", "POP_TOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "NOP"),
        *("CALL_INTRINSIC_1", "RERAISE", "LOAD_COMMON_CONSTANT", "LOAD_GLOBAL", "RAISE_VARARGS"),
    }
)
"""The instructions of a function whose body is `...` or `raise NotImplementedError`, on every supported Python."""
NOT_IMPLEMENTED: Final = NotImplementedError.__name__


def options_of(
    function: Callable[..., Any], options: ActivityOptions, *, process: bool, resumable: bool
) -> ActivityOptions:
    """The options of an activity with this function: a generator delivers a stream. Refuses what does not fit it."""
    if not inspect.isfunction(function):
        raise InvalidOption(f"@hf.activity marks a function: {not_a_function(function)}")
    if receiver_name(function) == "cls":
        refuse_method(function, "@hf.activity")
    if _is_stream(function, is_external=options.external is not None):
        options = replace(options, stream=StreamOptions(resumable=resumable))
    elif resumable:
        raise InvalidOption(f"{function.__qualname__}: resumable=True is for generators, which yield values")
    check_options(function, options, process=process)
    return options


def check_options(function: Callable[..., Any], options: ActivityOptions, *, process: bool) -> None:
    """Refuse options that do not fit the function of an activity, or each other."""
    if has_object(function) and (process or options.external is not None):
        option = "process=True" if process else "external=True"
        why = "its object cannot be passed to another process" if process else "an executor has no object"
        raise InvalidOption(f"{function.__qualname__}: {option} is for functions, and this is a method: {why}")
    if process and inspect.iscoroutinefunction(function):
        raise InvalidOption(f"{function.__qualname__}: process=True is for `def`; an `async def` runs in the loop")
    if options.external is not None and inspect.isfunction(function):
        check_external(function, options, process=process)
    if process and options.stream is not None:
        raise InvalidOption(f"{function.__qualname__}: process=True is for functions that return, not generators")
    if options.on_cancel is OnCancel.ABANDON and options.external is not None:
        raise InvalidOption(
            f"{function.__qualname__}: on_cancel='abandon' is for functions that a worker runs: an executor reads the "
            "cancellation in its rows, and decides itself"
        )
    if options.on_cancel is OnCancel.WAIT and options.stream is not None:
        raise InvalidOption(
            f"{function.__qualname__}: on_cancel='wait' is for functions that return: code that leaves a loop over a "
            "generator does not wait for it"
        )


def preparation(
    prepare: Callable[..., Any] | None, function: Callable[..., Any], *, process: bool
) -> Callable[..., Any] | None:
    """The checked function of `prepare=`. Of a method it may be another method of the object, or a function."""
    if not is_method(function):
        return checked_prepare(prepare, function, process=process)
    bound = without_object(prepare) if prepare is not None and is_method(prepare) else prepare
    return checked_prepare(bound, without_object(function), process=process)

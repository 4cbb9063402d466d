"""The base of activities and workflows: a marked function with its name and its signature."""

import functools
import inspect
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import InvalidOption
from holdfast.payloads.limits import shorten
from holdfast.payloads.signature import Signature

SHOWN_CHARACTERS: Final = 100


def receiver_name(function: FunctionType) -> str:
    """The first parameter of a function of a class that takes the object or the class: "self" or "cls"; else ""."""
    owner = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), "")
    return first if owner and not owner.endswith("<locals>") and first in ("self", "cls") else ""


def refuse_method(function: FunctionType, decorator: str) -> None:
    """Raise `InvalidOption` for a function of a class that takes the object or the class as its first argument.

    A worker finds the function by its name, and has no object to pass.
    """
    if receiver_name(function):
        name = function.__name__
        raise InvalidOption(
            f"{decorator} marks functions, and {function.__qualname__} is a method: a worker has no object to call it "
            f"on. Write a function at module level that makes or finds the object and calls {name} on it"
        )


def not_a_function(given: object) -> str:
    """The part of an error message that describes `given`, which is no function, and what to write instead."""
    name = getattr(given, "__name__", type(given).__name__)
    if isinstance(given, functools.partial):
        wrapped: Any = given.func
        name = getattr(wrapped, "__name__", type(wrapped).__name__)
        return (
            f"a functools.partial of {name} is not a function; write a function that calls {name} with these arguments"
        )
    if inspect.ismethod(given):
        return (
            f"{given.__qualname__} is a method of an object; mark it in its class with @hf.activity and register the "
            f"object, activities=[{type(given.__self__).__name__}(...)], or write a function that calls {name}"
        )
    if callable(given):
        return f"{name} is not a function written with def; write a function that calls {name}"
    return f"{shorten(repr(given), SHOWN_CHARACTERS)} is not a function; write one"


class Definition:
    """A marked function. Marking registers it nowhere.

    Attributes that every step reads have a slot: the lookup in an object with a cached property is slow.
    """

    __slots__ = ("__dict__", "__weakref__", "fn", "name")

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.name = name
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", name)
        self.__module__ = fn.__module__
        self.__wrapped__ = fn

    if TYPE_CHECKING:
        signature: Signature
        """Its parameters and result. Computed on first use, because annotations may name later classes."""
    else:

        @cached_property
        def signature(self) -> Signature:
            return Signature.of(self.fn)

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}>"

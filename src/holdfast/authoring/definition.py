"""What activities and workflows have in common: a function, its name, and its signature."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.payloads.signature import Signature


class Definition:
    """A marked function. It stays an ordinary object: nothing is registered anywhere.

    What is read in every step has a slot: Python looks up the attributes of an object with a cached property slowly.
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
        """What it takes and returns. Worked out when first needed, because annotations may name later classes."""
    else:

        @cached_property
        def signature(self) -> Signature:
            return Signature.of(self.fn)

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}>"

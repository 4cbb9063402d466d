"""What activities and workflows have in common: a function, its name, and its signature."""

from collections.abc import Callable
from typing import Any

from holdfast.payloads.signature import Signature


class Definition:
    """A marked function. It stays an ordinary object: nothing is registered anywhere."""

    signature: Signature
    """What it takes and returns. Worked out when first needed, because annotations may name later classes."""

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.name = name
        self.__doc__ = fn.__doc__
        self.__name__ = getattr(fn, "__name__", name)
        self.__module__ = fn.__module__
        self.__wrapped__ = fn

    def __getattr__(self, name: str) -> Any:
        """Asked for what is not there yet: the signature, when it is first needed."""
        if name != "signature":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self.signature = Signature.of(self.fn)
        return self.signature

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}>"

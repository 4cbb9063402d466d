"""What happens in this process rides with the turn that applies it: values that a body has just yielded (L13, L15), and
events that were raised here (G6). Both are on disk with the commit of that turn, and need no commit of their own.

When the turn does not come to disk, or is never taken because its instance is let go of, they are stored alone and wait
in the inbox. Values are known to the store by their numbers (L11), so that these are safe to store whatever became of
the turn. An event without an id is not: where nobody knows whether its turn is on disk, its sender is told so.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.errors import StoreError
from holdfast.storage.contract import Applied, Deliver, Failed, Outcome, StreamValues

if TYPE_CHECKING:
    from holdfast.runtime.live import Message


class Respond(Protocol):
    """Hands values to the store, and tells what became of them."""

    def __call__(self, responses: StreamValues, done: Callable[[Outcome], None], /) -> None: ...


class Send(Protocol):
    """Hands a message to the store, and tells what became of it."""

    def __call__(self, message: Deliver, done: Callable[[Outcome], None], /) -> None: ...


class UnstoredValues(NamedTuple):
    """Values for a turn. `alone` is the other way to the store, and `done` hears what became of them."""

    responses: StreamValues
    done: Callable[[Outcome], None]
    alone: Respond

    def go_alone(self) -> None:
        """No turn has applied them."""
        self.alone(self.responses, self.done)

    def tell(self, outcome: Outcome) -> None:
        """The turn that applied them was decided."""
        if isinstance(outcome, Applied):
            self.done(outcome)
        else:
            self.go_alone()


class UnstoredEvent(NamedTuple):
    """An event for a turn. `alone` is the other way to the store, and `done` hears what became of it."""

    message: Deliver
    done: Callable[[Outcome], None]
    alone: Send

    def go_alone(self) -> None:
        """No turn has applied it."""
        self.alone(self.message, self.done)

    def tell(self, outcome: Outcome) -> None:
        """The turn that applied it was decided. Where that is not known, only its sender can say what to do."""
        if isinstance(outcome, Applied) or (isinstance(outcome, Failed) and isinstance(outcome.error, StoreError)):
            self.done(outcome)
        else:
            self.go_alone()


Unstored = UnstoredValues | UnstoredEvent


def riders_in(messages: "Iterable[Message]") -> list[Unstored]:
    """What among messages is not stored yet, and has to find another way where no turn takes it along."""
    return [message.response for message in messages if isinstance(message.response, Unstored)]

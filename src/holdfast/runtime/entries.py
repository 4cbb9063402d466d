"""Values that a body in this process has just yielded, on their way into the turn that applies them (L13, L15).

They enter and leave leg 2 in the commit of that turn. When the turn does not come to disk, or is never taken because
its instance is let go of, they are stored alone and wait in the inbox. If the turn was on disk after all, the store
knows them (L11): nothing is applied twice.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.storage.contract import Applied, Outcome, Responses

if TYPE_CHECKING:
    from holdfast.runtime.live import Message


class Respond(Protocol):
    """Hands values to the store, and tells what became of them."""

    def __call__(self, responses: Responses, done: Callable[[Outcome], None], /) -> None: ...


class Entry(NamedTuple):
    """Values for a turn. `alone` is the other way to the store, and `done` hears what became of them."""

    responses: Responses
    done: Callable[[Outcome], None]
    alone: Respond

    def go_alone(self) -> None:
        """No turn has applied them."""
        self.alone(self.responses, self.done)


def entries_in(messages: "Iterable[Message]") -> list[Entry]:
    """The values among messages."""
    return [message.response for message in messages if type(message.response) is Entry]


def tell_entries(messages: "Iterable[Message]", outcome: Outcome) -> None:
    """The turn that applied these messages was decided."""
    for entry in entries_in(messages):
        if isinstance(outcome, Applied):
            entry.done(outcome)
        else:
            entry.go_alone()

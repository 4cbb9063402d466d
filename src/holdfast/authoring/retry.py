"""``hf.Retry``: how often and how patiently an activity is tried again."""

from dataclasses import dataclass

from holdfast.authoring.durations import Duration, milliseconds
from holdfast.core.retry import RetryPolicy
from holdfast.payloads.failures import qualified_name


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in all (None: for ever), with delays that grow from `initial` by `backoff` up to `maximum`.

    Errors of the types in `non_retryable`, or of types derived from them, are not retried.
    """

    attempts: int | None = 5
    initial: Duration = 1.0
    backoff: float = 2.0
    maximum: Duration = 60.0
    jitter: bool = True
    non_retryable: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> RetryPolicy:
        """The same in the core's terms. Numbers that make no sense are refused here."""
        return RetryPolicy(
            attempts=self.attempts,
            initial_ms=milliseconds(self.initial, "Retry(initial)"),
            backoff=self.backoff,
            maximum_ms=milliseconds(self.maximum, "Retry(maximum)"),
            jitter=self.jitter,
            non_retryable=frozenset(qualified_name(error) for error in self.non_retryable),
        )

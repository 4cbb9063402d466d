"""``hf.Launcher`` and ``hf.LaunchTask``: how a worker starts programs that run external activities (C4).

A worker with ``launchers={"gpu": launcher}`` claims the open external activities of the queue ``gpu`` and calls
``await launcher.launch(task)`` for each. The claim is committed before the call, so the same task is never launched by
two workers. The program reports by itself, with the ids and the claim of its environment.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class LaunchTask:
    """One external activity to be launched, as it was offered and claimed for this launch."""

    activity_exec_id: str
    """The attempt and entry that the program reports about."""
    activity_name: str
    workflow_exec_id: str
    """The id of the instance."""
    workflow_name: str
    queue: str
    attempt: int
    """The number of the attempt, from 1."""
    idempotency_key: str
    """The same for every attempt of this call, and no other call has it."""
    input: str
    """The arguments as the text of a JSON object."""
    claim: str = field(repr=False)
    """Reports without it are refused."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables for the program. The launcher adds `HOLDFAST_STORE` if it was given a store."""
        return {
            "HOLDFAST_ACTIVITY_EXEC_ID": self.activity_exec_id,
            "HOLDFAST_ACTIVITY_NAME": self.activity_name,
            "HOLDFAST_WORKFLOW_EXEC_ID": self.workflow_exec_id,
            "HOLDFAST_WORKFLOW_NAME": self.workflow_name,
            "HOLDFAST_CLAIM": self.claim,
        }


@runtime_checkable
class Launcher(Protocol):
    """Starts a container, a batch job or a process for an external activity."""

    async def launch(self, task: LaunchTask) -> None:
        """Start the program, and return when it is started. An exception is the failure of the attempt.

        A launcher that can start only so many programs has an attribute or property `room`, an `int`: the number of
        further programs. The worker claims no more than that.
        """
        ...

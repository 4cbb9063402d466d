"""The tasks that the main function of a workflow leaves running, each to be cancelled once (G14)."""

from holdfast.replay.futures import WorkflowTask


class LeftoverTasks:
    """Those that were there when the main function ended. Tasks that are started later, to clean up, are not."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: list[WorkflowTask] | None = None

    def note(self, pending: list[WorkflowTask]) -> None:
        """The main function takes its last step, and these have not ended."""
        self._tasks = pending

    def cancel(self, pending: list[WorkflowTask], *, insist: bool = False) -> bool:
        """Cancel those that were not cancelled yet, or with `insist` all that are pending. Whether any was.

        One that is being cancelled already, by the workflow's own code or with another, cleans up in peace. If it goes
        on afterwards, as after a time-out of its own, it is cancelled by a later call.
        """
        told = False
        being_cancelled: list[WorkflowTask] = []
        for task in pending if insist or self._tasks is None else self._tasks:
            if task.cancelling() and not insist:
                being_cancelled.append(task)
            else:
                told = task.cancel() or told
        self._tasks = being_cancelled
        return told

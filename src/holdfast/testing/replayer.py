"""Replays exported histories with the current code, to find changes that do not fit running instances (G12)."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import AnyWorkflow
from holdfast.client.views.history import parse
from holdfast.core.flow.snapshot import FlowSnapshot, version_of
from holdfast.core.history import HistoryEvent, Started
from holdfast.core.run import ExecutionId
from holdfast.errors import HistoryMismatch, HoldfastError, UsageError
from holdfast.replay.guard import Unguarded
from holdfast.replay.run import WorkflowRun

if TYPE_CHECKING:
    from holdfast.flows.workflow import FlowWorkflow

SUFFIXES: Final = (".json", ".jsonl")


class Replayer:
    """Replays histories: ``Replayer(workflows=[checkout]).replay_all("tests/histories")``. It runs no activity."""

    def __init__(
        self,
        *,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[AnyWorkflow] = (),
        flows: Iterable[AnyWorkflow] = (),
    ) -> None:
        self._registry = Registry(modules, workflows, (), flows)

    def replay(self, history: str | Path) -> None:
        """Replay one history, given as JSON or as a path. Raises `HistoryMismatch` with the first difference."""
        is_text = isinstance(history, str) and history.lstrip()[:1] in ("{", "[")
        if is_text:
            self._replay(str(history), "")
        else:
            self._replay(_read(Path(history)), f"{history}: ")

    def replay_all(self, folder: str | Path) -> list[str]:
        """Replay every ``.json`` and ``.jsonl`` file of a folder, and return their names.

        Raises one `HistoryMismatch` with the first difference of each file.
        """
        try:
            files = sorted(path for path in Path(folder).iterdir() if path.suffix in SUFFIXES)
        except OSError as error:
            raise UsageError(f"{folder} cannot be listed: {error}") from error
        if not files:
            raise UsageError(f"there is no history in {folder}")
        differences: list[str] = []
        for path in files:
            try:
                self.replay(path)
            except HistoryMismatch as error:
                differences.append(str(error))
        if differences:
            raise HistoryMismatch("; ".join(differences))
        return [path.name for path in files]

    def _replay(self, text: str, where: str) -> None:
        history, events = parse(text)
        started = events[0]
        name = history.workflow or (started.workflow if isinstance(started, Started) else "")
        identity = ExecutionId(history.id or name, name, history.execution)
        version = started.version if isinstance(started, Started) else None
        workflow = self._registry.find(name, version) or self._registry.workflow(name)
        if workflow.is_flow:
            _read_flow(cast("FlowWorkflow", workflow), events, where)
            return
        run = WorkflowRun(workflow, identity, self._registry.resolve, Unguarded)
        try:
            run.replay(events)
        except HistoryMismatch as error:
            raise HistoryMismatch(f"{where}{error}") from error
        finally:
            run.evict()


def _read_flow(flow: "FlowWorkflow", events: list[HistoryEvent], where: str) -> None:
    """Check that a history fits its flow. An instance of another version of the flow keeps that version."""
    if version_of(events) != flow.hash:
        return
    try:
        FlowSnapshot(flow.definition, events)
    except (HoldfastError, LookupError) as error:
        raise HistoryMismatch(f"{where}the history does not fit the flow {flow.name!r}: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"the history {str(path)[:200]!r} cannot be read: {error}") from error

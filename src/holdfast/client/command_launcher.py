"""``hf.CommandLauncher``: a launcher that starts one process for each external activity (C4).

The process is a session of its own and outlives the worker. Its exit code is not read: the program reports by itself,
and its deadlines end an attempt whose program is gone.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.authoring.launcher import LaunchTask
from holdfast.authoring.validation import checked_integer, checked_sequence
from holdfast.errors import InvalidOption

STORE = "HOLDFAST_STORE"
PREFIX = "HOLDFAST_"


class CommandLauncher:
    """Starts `command` for each task: ``hf.CommandLauncher(["holdfast", "activity", "run", "--", "./train.sh"])``

    The ids and the claim are in the environment, and the input is the standard input, as JSON. The variable
    ``HOLDFAST_STORE`` is set only if `store` is given, so that a program gets the address of the store, and the
    permissions that belong to it, by decision. `env` replaces the inherited environment. `max_processes` bounds the
    processes of this launcher that run at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        store: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        max_processes: int | None = None,
    ) -> None:
        words = [str(word) for word in checked_sequence(command, "command")]
        if not words:
            raise InvalidOption("CommandLauncher(command) needs the program and its arguments: ['./train.sh']")
        self._command = words
        self._store = None if store is None else str(store)
        self._env = None if env is None else dict(env)
        self._cwd = cwd
        self._most = None if max_processes is None else checked_integer(max_processes, "max_processes", least=1)
        self._running: set[int] = set()

    @property
    def room(self) -> int | None:
        """The number of further processes; None without `max_processes`."""
        self._reap()
        return None if self._most is None else max(0, self._most - len(self._running))

    async def launch(self, task: LaunchTask) -> None:
        """Start the process. `OSError` if the program cannot be started."""
        self._reap()
        self._running.add(await asyncio.to_thread(self._start, task))

    def environment(self, task: LaunchTask) -> dict[str, str]:
        """The whole environment of the process. No variable of Holdfast is inherited."""
        inherited = os.environ if self._env is None else self._env
        variables = {name: value for name, value in inherited.items() if not name.startswith(PREFIX)}
        variables |= task.environment
        if self._store is not None:
            variables[STORE] = self._store
        return variables

    def _start(self, task: LaunchTask) -> int:
        import tempfile  # noqa: PLC0415 - slow to import, and few programs start others

        with tempfile.TemporaryFile() as given:
            given.write(task.input.encode())
            given.seek(0)
            process = subprocess.Popen(  # noqa: S603 - the command of the application
                self._command,
                stdin=given,
                env=self.environment(task),
                cwd=self._cwd,
                start_new_session=True,
            )
        process.returncode = 0  # it is not waited for, except by `_reap`
        return process.pid

    def _reap(self) -> None:
        """Collect the processes that have ended."""
        for pid in list(self._running):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # the application ignores SIGCHLD, or has collected it
                ended = pid
            if ended:
                self._running.discard(pid)

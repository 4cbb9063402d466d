"""Takes a backup of a live SQLite store, and audits the copy before it gets its name (R1)."""

import errno
import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast import compose
from holdfast.audit.auditor import inspect
from holdfast.audit.problems import Problem, Rule
from holdfast.errors import StoreError, UsageError

PARTIAL: Final = ".partial"
"""Behind the name of a backup that is not finished."""
LOGS: Final = ("-wal", "-journal")
"""Files beside a database whose content SQLite applies to it."""
COMPANIONS: Final = (*LOGS, "-shm")
"""Files that SQLite makes beside a database."""
KEPT_BESIDE: Final = (*COMPANIONS, "-lock", "-gate")
"""The same, with those of Holdfast. No backup takes such a name beside its database, also not with `replace`."""
FILE_MODE: Final = 0o600


class BackupPhase(StrEnum):
    """The parts of the work, in their order."""

    COPY = "pages copied"
    VERIFY = "instances checked"


BackupProgress = Callable[[BackupPhase, int, int], None]
"""Receives the part of the work, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup that was written, or the problems for which none was."""

    file: Path
    size_bytes: int
    is_verified: bool
    """False: only the file was checked. The audit was left out, or the store has the schema of an earlier release."""
    problems: tuple[Problem, ...] = ()
    """The rules that the copy breaks, as the store does. Then no file was written."""
    instances: int = 0


def backup(
    store: str | Path,
    file: str | Path,
    *,
    replace: bool = False,
    verify: bool = True,
    progress: BackupProgress | None = None,
) -> BackupReport:
    """Copy a live SQLite store into `file`, without stopping its workers, and check the copy.

    The file has its name only when it is complete, checked and on disk; `replace=True` replaces an existing backup. The
    call blocks: in a program with an event loop write ``await asyncio.to_thread(hf.backup, "shop.db", "backup.db")``.
    With problems in the report no file was written; `verify=False` writes it without the audit.
    """
    if compose.is_address(store):
        raise UsageError(compose.backup_refusal(str(store)))
    source = Path(compose.checked_path(store))
    if not str(file):
        raise UsageError("the name of the backup is empty; name a file")
    target = Path(compose.checked_path(file))
    _check_target(source, target, replace=replace)
    show = progress or _show_nothing
    with _partial_file(target) as (partial, descriptor):
        is_current = compose.copy_store(source, partial, lambda done, total: show(BackupPhase.COPY, done, total))
        instances, problems = _audit(partial, show, whole=verify and is_current)
        size_bytes = os.fstat(descriptor).st_size
        if not problems:
            _finish(partial, target, descriptor, replace=replace)
        return BackupReport(target, size_bytes, verify and is_current, problems, instances)


def _show_nothing(phase: BackupPhase, done: int, total: int) -> None:
    """No progress is wanted."""
    del phase, done, total


def _check_target(source: Path, target: Path, *, replace: bool) -> None:
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent} for the backup {target.name}; make it")
    kept = next((suffix for suffix in KEPT_BESIDE if target.name.endswith(suffix)), "")
    database = target.with_name(target.name.removesuffix(kept))
    if kept and database.exists():
        raise UsageError(
            f"{target} is the name of a file that belongs to the database {database.name}; name another file"
        )
    if source.exists() and target.exists() and source.samefile(target):
        raise UsageError(f"{target} is the store itself; name another file")
    if target.exists():
        if not target.is_file():
            raise UsageError(f"{target} is not a file; name one for the backup")
        if not replace:
            raise UsageError(f"{target} exists; name another file, or replace it with --force (replace=True)")
    for companion in LOGS:
        beside = target.with_name(f"{target.name}{companion}")
        if beside.exists() and beside.stat().st_size:
            raise UsageError(
                f"{beside} belongs to a database at {target}, which is in use or was not closed; SQLite would apply it "
                "to the backup. Name another file"
            )


@contextmanager
def _partial_file(target: Path) -> Generator[tuple[Path, int]]:
    """An empty file beside the target that only this process writes. It is removed at the end."""
    partial = target.with_name(f"{target.name}{PARTIAL}")
    try:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    except OSError as error:
        raise StoreError(f"{partial} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"another process is writing the backup {target}") from error
    try:
        os.fchmod(descriptor, FILE_MODE)
        os.ftruncate(descriptor, 0)  # an earlier backup may have been interrupted
        yield partial, descriptor
    finally:
        for companion in ("", *COMPANIONS):
            with suppress(FileNotFoundError):
                partial.with_name(f"{partial.name}{companion}").unlink()
        os.close(descriptor)


def _audit(partial: Path, show: BackupProgress, *, whole: bool) -> tuple[int, tuple[Problem, ...]]:
    """Check the copy: by all rules of `verify`, or by SQLite's own check of the file."""
    if whole:
        report = inspect(partial, lambda done, total: show(BackupPhase.VERIFY, done, total))
        return report.instances, report.problems
    return 0, tuple(Problem("", Rule.FILE_SOUND, line) for line in compose.file_damage(partial))


def _finish(partial: Path, target: Path, descriptor: int, *, replace: bool) -> None:
    """Sync the copy, and give it its name. Without `replace` a file that was made meanwhile stays."""
    try:
        os.fsync(descriptor)
        if replace:
            partial.replace(target)
        else:
            _link(partial, target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError as error:
        raise UsageError(f"{target} was made by another program meanwhile; name another file") from error
    except OSError as error:
        raise StoreError(f"the backup {target} could not be written: {error.strerror}") from error


def _link(partial: Path, target: Path) -> None:
    """Give the file its name, and never replace another one, where the file system has hard links."""
    try:
        target.hardlink_to(partial)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        partial.rename(target)

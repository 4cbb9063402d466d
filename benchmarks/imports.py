"""What ``import holdfast`` costs, beside the import of what it stands on."""

import subprocess
import sys
from typing import Final

from benchmarks.measure import Sample

GROUND: Final = "import asyncio, msgspec"
OURS: Final = "import holdfast"
EVERYTHING: Final = "from holdfast import *"
TIMER: Final = "import time; before = time.perf_counter(); {code}; print(time.perf_counter() - before)"
UNWANTED: Final = (
    "aiohttp", "asyncpg", "click", "fastapi", "holdfast.cli", "holdfast.http", "http.server", "psycopg", "pydantic",
    "rich", "starlette", "typer", "uvicorn",
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
    }


def _python(code: str) -> str:
    return subprocess.run(  # noqa: S603 - code from this file
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

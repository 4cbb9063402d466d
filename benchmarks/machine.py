"""A description of the machine and of versions, for published figures. No names of hosts or users."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

from holdfast._version import __version__


def machine() -> dict[str, str]:
    """Processor, cores, memory and system."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count() or 0),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


def versions() -> dict[str, str]:
    """Of Holdfast and of what it runs on."""
    return {"Holdfast": __version__, "Python": platform.python_version(), "SQLite": apsw.sqlite_lib_version()}


def origin(report: Mapping[str, Any]) -> str:
    """When, on what and with what a report was measured, in sentences."""
    found: dict[str, str] = report["machine"]
    on = f"{found['cores']} cores ({found['processor']}), {found['memory']} of memory, {found['system']}"
    named = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return (
        f"Measured on {report['taken']} in {report['seconds'] / 60:.0f} minutes on {on}, with a load of "
        f"{found['load at the start']} at the start; {named}."
    )


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _memory() -> str:
    kilobytes = _field("/proc/meminfo", "MemTotal").partition(" ")[0]
    return f"{int(kilobytes) / 1024**2:.0f} GB" if kilobytes.isdigit() else "unknown"

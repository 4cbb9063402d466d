"""DBOS on the same server, in an interpreter of its own that has it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict
from tests.postgres.server import Place

from benchmarks.measure import Sample

INTERPRETER: Final = "HOLDFAST_BENCH_DBOS"
SCALE: Final = 0.2
"""It needs less work for the same time."""
LONGEST_SECONDS: Final = 300
PROGRAM: Final = Path(__file__).parents[1] / "peers" / "dbos_program.py"


def sample(workload: str, place: Place, scale: float) -> Sample:
    """A workload, in a database of its own."""
    interpreter = os.environ.get(INTERPRETER)
    if not interpreter:
        raise SystemExit(f"${INTERPRETER} names no interpreter that has DBOS; `make bench-postgres` makes one")
    with place.connect() as connection:
        connection.execute(f'CREATE DATABASE "{place.schema}"'.encode())
        try:
            done = subprocess.run(  # noqa: S603 - a program of ours, by the interpreter that was named
                [interpreter, str(PROGRAM), workload, _url(place), str(scale * SCALE)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=LONGEST_SECONDS,
            )
        finally:
            connection.execute(f'DROP DATABASE "{place.schema}" WITH (FORCE)'.encode())
    figures: Sample = json.loads(done.stdout.splitlines()[-1])
    return figures


def _url(place: Place) -> str:
    """In the form that DBOS takes."""
    given = conninfo_to_dict(place.server)
    rest = urlencode([(name, str(value)) for name, value in given.items() if name in ("host", "port")])
    return f"postgresql://{given.get('user', '')}@/{place.schema}?{rest}"

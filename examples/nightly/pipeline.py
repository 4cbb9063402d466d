"""A nightly pipeline as a YAML graph: fan-out, join and error edge.

    python examples/nightly/pipeline.py
    holdfast flow draw examples/nightly/pipeline.yaml --output flow.svg

`extract` runs once for each region, two at a time. `load` runs after
all of them. If it fails with BadRows, the edge with `catch` runs
`alert` and `report` is skipped. Needs `pip install 'holdfast[flows]'`.
"""

import asyncio
from pathlib import Path

import holdfast as hf


class BadRows(Exception):
    """Rows that the warehouse refuses; a retry does not help."""


@hf.activity(retry=hf.Retry(attempts=4, initial=0.05))
async def extract(region: str, day: str) -> list[int]:
    attempt = hf.activity_info().attempt
    if region == "north" and attempt == 1:
        raise ConnectionError("north does not answer yet")
    print(f"  extracted {region} of {day}, attempt {attempt}")
    return [-1] if region == "atlantis" else [len(region), 10]


@hf.activity(retry=hf.Retry(non_retryable=(BadRows,)))
async def load(tables: list[list[int]]) -> int:
    rows = [row for table in tables for row in table]
    if min(rows) < 0:
        raise BadRows(f"{min(rows)} in {len(rows)} rows")
    return len(rows)


@hf.activity
async def report(day: str, rows: int) -> str:
    return f"{rows} rows of {day} are in the warehouse"


@hf.activity
async def alert(reason: str) -> str:
    return f"alert: {reason}"


ACTIVITIES = [extract, load, report, alert]


async def main() -> None:
    nightly = hf.Flow.load(
        Path(__file__).with_name("pipeline.yaml"), activities=ACTIVITIES
    )
    async with hf.Engine(
        ":memory:", flows=[nightly], activities=ACTIVITIES
    ) as engine:
        for day, regions in (
            ("monday", ["north", "east", "south", "west"]),
            ("tuesday", ["east", "atlantis"]),
        ):
            handle = await engine.start(
                nightly,
                {"day": day, "regions": regions},
                id=f"nightly-{day}",
            )
            print(f"{day}: {await handle.result()}")
            key = (await handle.describe()).collation_key
            print(f"  key {key} (alert, extract, load, report, ...)")


if __name__ == "__main__":
    asyncio.run(main())

"""An executor that claims the open attempt, reports up to a state, and is killed without a word: STORE TRANSITION..."""

import asyncio
import os
import signal
import sys

import holdfast as hf
from holdfast.client.activity_reports import ActivityReports
from holdfast.core.activity_events import ReportKind, ReportState


async def main(store: str, transitions: list[str]) -> None:
    async with await hf.connect(store) as client:
        reports = ActivityReports(client._calls, source="dying")
        while not (found := await reports.open_activities(limit=1)):  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(0.02)
        claim = reports.new_claim()
        for transition in transitions:
            answer = await reports.report(found[0].activity_exec_id, ReportKind(transition), claim=claim, seconds=20)
            assert answer.state is ReportState.APPLIED, answer
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))

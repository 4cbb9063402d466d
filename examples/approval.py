"""A person approves a purchase, and gets reminders until then.

    python examples/approval.py

The engine is closed between the steps, as by a deploy: the timers and
the open question are in the store. In your program the reminders are
days apart; make INTERVAL a `timedelta(days=2)`.
"""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

import holdfast as hf

INTERVAL = 0.5  # seconds
REMINDERS = 2


@dataclass
class Decision:
    approved: bool
    by: str


decision = hf.Event[Decision]("decision")


@hf.activity
async def send_mail(to: str, text: str) -> None:
    print(f"  mail to {to}: {text}")


@hf.workflow
async def purchase(item: str, boss: str) -> str:
    hf.set_status("waiting for a decision")
    await send_mail(boss, f"may we buy a {item}?")
    for number in range(REMINDERS + 1):
        if number:
            await send_mail(boss, f"reminder {number}: the {item}")
        try:
            async with asyncio.timeout(INTERVAL):
                answer = await decision
        except TimeoutError:
            continue
        word = "approved" if answer.approved else "refused"
        hf.set_status(word)
        return f"{word} by {answer.by}"
    hf.set_status("expired")
    return "refused: no answer"


def open_engine(store: Path) -> hf.Engine:
    return hf.Engine(
        store, workflows=[purchase], activities=[send_mail]
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "purchases.db")
        async with open_engine(store) as engine:
            await engine.start(purchase, "robot", "ann", id="robot")
            await engine.start(purchase, "yacht", "bob", id="yacht")
            await asyncio.sleep(1.5 * INTERVAL)
        print("engine closed; timers and questions are in the store")

        async with open_engine(store) as engine:
            robot = engine.get("robot")
            status = (await robot.describe()).custom_status
            print(f"engine opened; robot is {status}")
            await robot.raise_event(decision, Decision(True, "ann"))
            print(f"robot: {await robot.result()}")
            print(f"yacht: {await engine.get('yacht').result()}")


if __name__ == "__main__":
    asyncio.run(main())

"""Book a trip: six steps, one after the other, each recorded once.

    holdfast run examples/trip.py:book_trip --id ada-lisbon \\
        --input '{"traveller": "Ada", "city": "Lisbon"}'

Stop it with Ctrl-C or kill it, and run it again with the same id: it
continues after the last recorded step. `make demo` does that for you.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import holdfast as hf

STEP_SECONDS = 0.4
JOURNAL_VARIABLE = "TRIP_JOURNAL"


@dataclass
class Trip:
    """What the traveller gets."""

    traveller: str
    city: str
    bookings: list[str]


@hf.activity
async def find_flight(city: str) -> str:
    return await work(f"flight to {city}")


@hf.activity
async def reserve_seat(flight: str) -> str:
    return await work(f"seat 12A, {flight}")


@hf.activity
async def book_hotel(city: str) -> str:
    return await work(f"hotel in {city}")


@hf.activity
async def rent_car(city: str) -> str:
    return await work(f"car in {city}")


@hf.activity
async def charge_card(traveller: str, cents: int) -> str:
    return await work(f"{cents / 100:.2f} charged to {traveller}")


@hf.activity
async def send_tickets(traveller: str, bookings: list[str]) -> str:
    return await work(f"{len(bookings)} tickets sent to {traveller}")


@hf.workflow
async def book_trip(traveller: str, city: str) -> Trip:
    flight = await find_flight(city)
    bookings = [
        await reserve_seat(flight),
        await book_hotel(city),
        await rent_car(city),
        await charge_card(traveller, 42_000),
    ]
    bookings.append(await send_tickets(traveller, bookings))
    return Trip(traveller, city, bookings)


async def work(answer: str) -> str:
    """Stands for work. A journal, if set, shows which bodies ran."""
    write_journal("began")
    await asyncio.sleep(STEP_SECONDS)
    write_journal("ended")
    return answer


def write_journal(what: str) -> None:
    journal = os.environ.get(JOURNAL_VARIABLE)
    if journal:
        with Path(journal).open("a", encoding="utf-8") as file:
            file.write(
                f"{os.getpid()} {what} {hf.activity_info().activity}\n"
            )

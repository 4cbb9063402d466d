"""A parent workflow and its children.

    python examples/parent_and_children.py

Each chapter of a book is translated by a child: an instance of its own,
with its own history and its own place in `holdfast list`. One child
fails and the parent handles it, one takes too long and is cancelled,
and one is detached: it continues after the end of its parent.
"""

import asyncio

import holdfast as hf


class Unreadable(Exception):
    """A chapter that cannot be translated."""


@hf.activity(retry=hf.Retry(non_retryable=(Unreadable,)))
async def translate_text(text: str) -> str:
    if text == "#!?":
        raise Unreadable(text)
    return text.upper()


@hf.workflow
async def chapter(text: str) -> str:
    if text == "a very long chapter":
        await asyncio.sleep(3600)
    return await translate_text(text)


@hf.workflow
async def archive(title: str) -> str:
    await asyncio.sleep(0.2)
    return f"{title} is archived"


@hf.workflow
async def book(title: str, chapters: list[str]) -> list[str]:
    await hf.start(archive, title, id=f"archive-{title}", detached=True)
    return await asyncio.gather(*(one(text) for text in chapters))


async def one(text: str) -> str:
    """Translate a chapter by a child, or say why there is none."""
    try:
        async with asyncio.timeout(0.5):  # cancels the child
            return await chapter(text)
    except TimeoutError:
        return "(too slow)"
    except hf.WorkflowFailed as failed:
        return f"({type(failed.cause).__name__})"


async def main() -> None:
    async with hf.Engine(
        ":memory:",
        workflows=[book, chapter, archive],
        activities=[translate_text],
    ) as engine:
        texts = ["one", "two", "#!?", "a very long chapter"]
        handle = await engine.start(book, "kelp", texts, id="book-7")
        print(f"book-7: {await handle.result()}")
        print(await engine.get("archive-kelp").result())
        try:
            await engine.get("book-7/1/4").result()
        except hf.WorkflowCancelled as cancelled:
            print(cancelled)
        for child in reversed(await handle.children()):
            print(f"  {child.id:14} {child.workflow:8} {child.state}")


if __name__ == "__main__":
    asyncio.run(main())

"""Serve a model: concurrent requests share calls of it, and long answers do not block short ones.

`python app.py` sends 400 requests at once and prints what they have shared.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import actorflow as af
from actorflow.behaviours import Bucket, Chunk, Deadline, Queue

calls: list[tuple[str, int]] = []
"""The calls of the model: what was called, with how many requests."""


@dataclass(frozen=True)
class Picture:
    """A picture to classify. Only pictures of one size can share a call."""

    name: str
    size: int


@af.batched(Bucket(key=lambda picture: picture.size, inner=Chunk(Queue(), 32)))
async def classify(pictures: list[Picture]) -> list[str]:
    """Classify up to 32 pictures of one size in one call."""
    calls.append(("classify", len(pictures)))
    assert len({picture.size for picture in pictures}) == 1  # noqa: S101 - what Bucket promises
    await asyncio.sleep(0.005 + 0.000_2 * len(pictures))  # the model
    return [f"{picture.name} is a cat" for picture in pictures]


@af.batched(Deadline(Queue(), within=30.0))
async def embed(texts: list[str]) -> list[int]:
    """Embed texts. Requests that cannot be answered in time are refused at once."""
    calls.append(("embed", len(texts)))
    await asyncio.sleep(0.005 + 0.000_2 * len(texts))
    return [len(text) for text in texts]


@af.batched(Chunk(Queue(), 64))
async def generate(requests: list[tuple[str, int]]) -> list[str | af.Again]:
    """Generate one token for each request. Unfinished ones come again with the next call."""
    calls.append(("generate", len(requests)))
    await asyncio.sleep(0.002)
    return [text if left == 0 else af.Again((f"{text}.", left - 1)) for text, left in requests]


async def main() -> dict[str, int]:
    """Send all requests at once; return how many calls of the model they needed."""
    dice = random.Random(7)
    pictures = [Picture(f"picture {number}", dice.choice([64, 128])) for number in range(200)]
    labels, sizes, texts = await asyncio.gather(
        asyncio.gather(*map(classify, pictures)),
        asyncio.gather(*(embed("x" * number) for number in range(100))),
        asyncio.gather(*(generate((f"t{number}", number % 10)) for number in range(100))),
    )
    if labels[0] != "picture 0 is a cat" or sizes != list(range(100)) or texts[3] != "t3...":
        raise RuntimeError("a request has got the answer of another one")
    return {name: sum(1 for each, _ in calls if each == name) for name, _ in calls}


if __name__ == "__main__":
    for name, count in asyncio.run(main()).items():
        largest = max(size for each, size in calls if each == name)
        print(f"{name}: {count} calls of the model, the largest with {largest} requests")

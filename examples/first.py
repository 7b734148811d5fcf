"""The first program of the README: a worker that takes everything that accumulated."""

import time

import actorflow as af


def save(rows: list[int], saved: int) -> int:
    """Save rows; return how many were saved so far."""
    time.sleep(0.01)  # a slow disk
    print(f"{time.perf_counter() - began:.3f} s: saved {len(rows):,} rows in one transaction")
    return saved + len(rows)


with af.spawn(save, state=0) as writer:
    began = time.perf_counter()
    for row in range(10_000):
        writer.push(row)

"""The first example of the README: batches that grow with the load."""

import time

import actorflow as af


def save(rows: list[int], saved: int) -> int:
    """Save rows; return how many were saved so far."""
    time.sleep(0.01)  # a slow disk
    print(f"saved {len(rows)} rows in one transaction")
    return saved + len(rows)


with af.spawn(save, state=0) as writer:
    for load in (1, 10, 100, 1000):
        for row in range(load):
            writer.push(row)
        writer.push_block(load)  # wait until everything so far is saved

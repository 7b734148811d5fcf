"""How much CPU time it takes to read and to format a flow, by its length.

Run with ``python -m benchmarks.parser``. The time per line should be flat: reading is linear. Texts
that make a grammar with choices read the same thing over and over are measured too.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

from actorflow.flows.language.formatter import format_tree
from actorflow.flows.language.parser import FlowSyntaxError, parse
from actorflow.flows.language.tree import walk

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = (100, 1_000, 10_000)
ROUNDS = 5

BLOCK = """\
sequence # a bit of everything, ten lines
  push f.l 'a' if f.n == 7
  task 'alice' "stage $(name) of $(f.total||'all')" due: '2d', # soon
    tag: 'x'
  concurrence expect: 2 on_error: (def msg, err \\ push f.l err.msg)
    set f.d { a: 1, b: [ 1, 2, 3 ], c: { d: f.x[1:2] } }
    case f.n
      [ 0 1 2 ];; push f.l 'low'
      r/^ab(.)$/;; push f.l match.1
  set i (+ i 1)
"""

HOSTILE: dict[str, Callable[[], str]] = {
    "100,000 open parentheses": lambda: "(" * 100_000,
    "5,000 ever deeper lines": lambda: "\n".join(" " * n + "a" for n in range(5_000)),
    "100,000 joined lines": lambda: "a \\ " * 100_000,
    "failing operands, 190 deep": lambda: "a + (" * 190,
    "index or array, 90 deep": lambda: "a[(" * 90 + "x" + ") y]" * 90,
    "regex or reference, 60 deep": lambda: '/["$(' * 60 + "x" + ')"]/' * 60,
    "a chain of 100,000 operators": lambda: "1 + " * 100_000 + "1",
    "1 MB of spaces": lambda: "a" + " " * 1_000_000,
}


def best(work: Callable[[], object]) -> float:
    """Return the best CPU time of a few rounds, in seconds."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def attempt(text: str) -> str:
    """Return the result of reading a text."""
    try:
        parse(text)
    except FlowSyntaxError as error:
        return error.problem[:60]
    return "a tree"


def main() -> None:
    """Print the tables."""
    print(f"{'lines':>8} {'trees':>9} {'parse s':>9} {'us/line':>9} {'format s':>9} {'us/line':>9}")
    for lines in LENGTHS:
        text = BLOCK * (lines // BLOCK.count("\n"))
        reading = best(lambda text=text: parse(text))  # type: ignore[misc]
        tree = parse(text)
        trees = sum(1 for _ in walk(tree))
        writing = best(lambda tree=tree: format_tree(tree))  # type: ignore[misc]
        print(
            f"{lines:>8,} {trees:>9,} {reading:>9.4f} {reading / lines * 1e6:>9.1f} "
            f"{writing:>9.4f} {writing / lines * 1e6:>9.1f}"
        )
    print(f"\n{'hostile text':<32} {'kB':>7} {'s':>8}  result")
    for name, make in HOSTILE.items():
        text = make()
        start = time.process_time()
        result = attempt(text)
        spent = time.process_time() - start
        print(f"{name:<32} {len(text) / 1e3:>7.1f} {spent:>8.4f}  {result}")


if __name__ == "__main__":
    main()

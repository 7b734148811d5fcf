"""Count the words of many files: each file is a job, and only files that have changed are read.

`python app.py FOLDER` runs it; change a file and run it again.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import actorflow as af


def count(path: str) -> Counter[str]:
    """Count the words of one file."""
    return Counter(Path(path).read_text(encoding="utf-8").lower().split())


def merge(counts: list[Counter[str]]) -> Counter[str]:
    """Put the counts of all files together."""
    return sum(counts, Counter())


def most_common(total: Counter[str], number: int) -> list[tuple[str, int]]:
    """Return the most frequent words, in a stable order."""
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:number]


def pipeline(folder: Path) -> af.Plan:
    """Build the graph: a job for each file, then two that follow."""
    plan = af.Plan()
    files = sorted(folder.glob("*.txt"))
    counts = [plan.job(count, plan.file(str(each)), name=f"count {each.name}") for each in files]
    plan.job(most_common, plan.job(merge, counts), 3)
    return plan


def main(folder: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """Run it; return the most frequent words, and the names of the jobs that had to run."""
    result = pipeline(folder).run(workers=2, cache=str(folder / ".cache"))
    return result["most_common"], [name for name in result if name not in result.cached]


if __name__ == "__main__":
    texts = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    if not list(texts.glob("*.txt")):
        (texts / "one.txt").write_text("tea and cake and tea", encoding="utf-8")
        (texts / "two.txt").write_text("more tea", encoding="utf-8")
    for _ in range(2):
        words, ran = main(texts)
        print(words, "after running", ", ".join(ran) or "nothing")

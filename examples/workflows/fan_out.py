"""Split work among child workflows, and put their results together.

Temporal calls it *parent and child workflows*, Hatchet *fanout*, DBOS *start_workflow*.
"""

import sys

import actorflow as af


@af.task
def count(chapter: str) -> int:
    """Count the words of a chapter."""
    return len(chapter.split())


class Chapter(af.Workflow[int]):
    """Looks at one chapter."""

    def __init__(self, text: str) -> None:
        self.text = text

    def handle(self) -> int:
        """Return the number of its words."""
        return self.execute(count(self.text))


class Book(af.Workflow[int]):
    """Looks at all chapters at once."""

    def __init__(self, chapters: list[str]) -> None:
        self.chapters = chapters

    def handle(self) -> int:
        """Return the number of all words."""
        return sum(self.execute_all([Chapter(text) for text in self.chapters]))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    chapters = [f"chapter {number} " + "word " * number for number in range(10)]
    with af.Engine(store) as engine:
        print(engine.start(Book(chapters), id="book").result(timeout=20), "words")


if __name__ == "__main__":
    main(*sys.argv[1:])

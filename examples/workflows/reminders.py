"""Remind somebody until there is an answer. No answer is lost, whenever it arrives.

Temporal calls it *timers and signals*, Zenaton *reminders*.
"""

import sys

import actorflow as af

DAY = 0.05  # seconds; 86_400 in real life


@af.task(retries=5)
def remind(who: str, times: int) -> int:
    """Write a mail."""
    print(f"{who}, please answer (reminder {times})")
    return times


class Invitation(af.Workflow[str]):
    """Invites somebody to a party."""

    def __init__(self, guest: str) -> None:
        self.guest = guest

    def handle(self) -> str:
        """Return the answer."""
        reminders = 0
        while (answer := self.wait("answer", seconds=DAY)) is None:
            reminders = self.execute(remind(self.guest, reminders + 1))
            self.publish(reminders)
        return f"{self.guest}: {answer.data['text']}"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        ann = engine.start(Invitation("ann"), id="party-ann")
        for reminders in ann.follow(timeout=20):
            if reminders == 2:
                ann.send("answer", text="I come", id="answer-1")
        print(ann.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])

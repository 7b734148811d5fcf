"""Follow an order through its states; others change it, and get an answer or a refusal.

Temporal calls such a question an *update* with a *validator*, Restate *food ordering*.
"""

import sys

import actorflow as af

STATES = ["ordered", "cooked", "on its way", "delivered"]


class Delivery(af.Workflow[str], keep_events=()):
    """One meal, from the order to its delivery."""

    def __init__(self, meal: str) -> None:
        self.meal = meal
        self.state = STATES[0]
        self.wishes: list[str] = []

    def handle(self) -> str:
        """Return the meal with its state."""
        in_time = self.until(lambda: self.state == STATES[-1], hours=2)
        wishes = " and ".join(self.wishes)
        return f"{self.meal} with {wishes} {self.state}" if in_time else "refunded"

    def on_event(self, event: af.Event) -> str:
        """Answer what `ask` asks; a refusal changes nothing."""
        if event.name == "wish":
            if self.state != "ordered":
                raise af.Refused(f"too late, it is {self.state}")
            self.wishes.append(event.data["text"])
        elif event.name == "next":
            self.state = STATES[STATES.index(self.state) + 1]
        self.publish(self.state)
        return self.state


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        pizza = engine.start(Delivery("pizza"), id="pizza-1")
        for number, wish in enumerate(["olives", "basil"]):
            pizza.ask("wish", text=wish, id=f"wish-{number}", timeout=20)
        print("now it is", pizza.ask("next", id="cooked", timeout=20))
        try:
            pizza.ask("wish", text="pineapple", id="wish-3", timeout=20)
        except af.Refused as refusal:
            print("refused:", refusal)
        for state in STATES[2:]:
            pizza.send("next", id=state)
        print(pizza.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])

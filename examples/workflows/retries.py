"""Choose for each task which errors are tried again, how often, and how soon.

Temporal calls it a *retry policy* with *non-retryable errors*, Celery *autoretry_for*.
"""

import sys

import actorflow as af


class NoSuchCity(Exception):
    """A mistake of the user."""


@af.task(
    retries=4,
    backoff=af.Backoff(initial=0.02, factor=2.0, jitter=0.1),
    give_up_on=(NoSuchCity,),
    attempt_timeout=5,
    timeout=60,
)
def forecast(city: str) -> str:
    """Ask a service that fails twice."""
    attempt = af.current_task().attempt
    if city == "Atlantis":
        raise NoSuchCity(city)
    if attempt < 3:
        raise ConnectionError(f"attempt {attempt}")
    return f"{city}: sunny"


class Forecasts(af.Workflow[str]):
    """Asks about several cities at once."""

    def __init__(self, *cities: str) -> None:
        self.cities = list(cities)

    async def handle(self) -> str:
        """Return all forecasts."""
        found = []
        for city in self.cities:
            try:
                found.append(await self.aexecute(forecast(city), raises=True))
            except af.StepFailed as failed:
                found.append(failed.error["name"])
        return ", ".join(found)


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Forecasts("Rome", "Atlantis"), id="weather").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])

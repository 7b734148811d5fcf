"""Let an agent ask before it does something that cannot be undone.

LangGraph calls it *interrupt and resume*, Restate *human in the loop*, the OpenAI SDK *approval*.
"""

import sys
from dataclasses import dataclass

import actorflow as af


@dataclass
class Decision:
    """What a person says about a tool call."""

    approved: bool
    by: str


@af.task
def plan(wish: str) -> list[str]:
    """Ask the model which tools it wants to use."""
    return [f"read mails to {wish}", "delete spam"]


@af.task
def use(tool: str) -> str:
    """Use a tool."""
    return f"{tool}: done"


class Agent(af.Workflow[str], events=[Decision]):
    """Asks about everything that deletes."""

    def __init__(self, wish: str) -> None:
        self.wish = wish

    def handle(self) -> str:
        """Return a report."""
        report = []
        for tool in self.execute(plan(self.wish)):
            if "delete" in tool:
                self.publish(f"May I {tool}?")
                decision = self.wait(Decision, days=1)
                if decision is None or not decision.approved:
                    report.append(f"{tool}: not allowed")
                    continue
            report.append(self.execute(use(tool)))
        return ", ".join(report)


if __name__ == "__main__":
    with af.Engine(*sys.argv[1:] or [":memory:"]) as engine:
        agent = engine.start(Agent("tidy up"), id="a-1")
        for question in agent.follow(timeout=20):
            print(question)
            agent.send(Decision(approved=True, by="ann"), id="decision-1")
        print(agent.result(timeout=20))

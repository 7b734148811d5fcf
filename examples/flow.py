"""A flow on the engine: two taskers, one of whom answers later, and a look at every message."""

import threading

import actorflow as af
from actorflow.flows.trace import trace_lines

FLOW = """
sequence
  set f.log []
  concurrence
    alice 'check the order'
    bob 'check the stock'
  push f.log "order $(f.order): $(f.alice) and $(f.bob)"
"""

asked = threading.Event()


def alice(task: af.FlowTask) -> dict[str, object]:
    """Answer at once."""
    return {**task.payload, "alice": f"{task.name}, done"}


def bob(_task: af.FlowTask) -> object:
    """Answer later."""
    asked.set()
    return af.HOLD


with af.Engine(":memory:") as engine:
    engine.tasker("alice", alice)
    engine.tasker("bob", bob)
    exid = engine.launch(FLOW, payload={"order": 7})

    asked.wait(10)
    (held,) = [task for task in engine.execution(exid).tasks if task.tasker == "bob"]
    print(f"bob holds the task at node {held.nid}: {held.name}")
    engine.return_task(exid, held.nid, {"bob": "stock is fine", "order": 7})

    done = engine.wait(exid, timeout=10)
    for line in trace_lines(exid, done.runs()):
        print(line)
    print(done.payload)

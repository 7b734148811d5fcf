"""A flow with two taskers, one of which answers later, and the history of its messages."""

import threading

import actorflow as af

FLOW = """
sequence
  set f.log []
  concurrence
    alice 'check the order'
    bob 'check the stock'
  push f.log "order $(f.order): $(f.alice), $(f.bob)"
"""

bob_was_asked = threading.Event()


def alice(task: af.FlowTask) -> dict[str, object]:
    """Answer at once."""
    return {**task.payload, "alice": f"{task.name}, done"}


def bob(_task: af.FlowTask) -> object:
    """Hold the task: somebody returns it later, perhaps after days and from another process."""
    bob_was_asked.set()
    return af.HOLD


with af.Engine(":memory:") as engine:
    engine.tasker("alice", alice)
    engine.tasker("bob", bob)
    exid = engine.launch(FLOW, payload={"order": 7})

    bob_was_asked.wait(10)
    (held,) = [task for task in engine.execution(exid).view.tasks if task.tasker == "bob"]
    print(f"bob holds the task of node {held.nid}: {held.name}")
    engine.flows.return_task(exid, held.nid, {"bob": "stock is fine", "order": 7})

    done = engine.wait(exid, timeout=10)
    history = done.view.history()
    print(f"{done.status} after {len(history)} messages, among them")
    for message in history:
        if message["point"] in {"task", "return", "terminated"}:
            print(f"{message['m']:4} {message['point']:10} {message.get('tasker', '')}")
    print(done.result)

"""The names of all commands, where they are, and what the list of commands says of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "Entry"]


class Entry(NamedTuple):
    """Where a command is, and what `actorflow --help` says of it without loading it."""

    panel: str
    module: str
    help: str


_RUN, _LOOK, _ACT, _KEEP, _BUILD = "Run", "Look", "Act", "Maintain", "Build"

COMMANDS = {
    "new": Entry(
        _RUN,
        "new",
        "Create a starter project: a worker, a workflow, tests and a Dockerfile.",
    ),
    "tour": Entry(
        _RUN,
        "tour",
        "Show what actorflow does, in a minute.",
    ),
    "serve": Entry(
        _RUN,
        "serve",
        "Run an engine until SIGINT or SIGTERM.",
    ),
    "agent": Entry(
        _RUN,
        "serve",
        "Run an engine for workers of other languages.",
    ),
    "cluster": Entry(
        _RUN,
        "cluster",
        "Run workers that share one store, and look at them.",
    ),
    "web": Entry(
        _LOOK,
        "web",
        "Serve the dashboard of a store until Ctrl-C.",
    ),
    "top": Entry(
        _LOOK,
        "top",
        "Show executions, workers and supervision trees live; Enter opens a row, q quits.",
    ),
    "ps": Entry(
        _LOOK,
        "query",
        "List executions, with the messages and tasks that are open for each.",
    ),
    "show": Entry(
        _LOOK,
        "query",
        "Show all that is stored of one execution, and what its kind makes of it.",
    ),
    "trace": Entry(
        _LOOK,
        "query",
        "Show the history of an execution, oldest first.",
    ),
    "follow": Entry(
        _LOOK,
        "query",
        "Print the values that a workflow publishes, until it has ended.",
    ),
    "wait": Entry(
        _LOOK,
        "query",
        "Wait until an execution has ended or is stuck, and show it.",
    ),
    "tasks": Entry(
        _LOOK,
        "query",
        "List the tasks that have not ended.",
    ),
    "dead": Entry(
        _LOOK,
        "query",
        "List dead letters: messages that could not be processed.",
    ),
    "schedules": Entry(
        _LOOK,
        "query",
        "List the schedules: what happens by the clock.",
    ),
    "workers": Entry(
        _LOOK,
        "query",
        "Show the workers and the supervision trees of the engine's process.",
    ),
    "stats": Entry(
        _LOOK,
        "query",
        "Show the figures of the engine.",
    ),
    "count": Entry(
        _LOOK,
        "query",
        "Count executions; at most 100,000 of them.",
    ),
    "audit": Entry(
        _LOOK,
        "query",
        "List what operators have done, newest first.",
    ),
    "start": Entry(
        _ACT,
        "control",
        "Start a workflow, a flow, or an execution of another kind; print its id.",
    ),
    "send": Entry(
        _ACT,
        "control",
        "Send a message; or, with `event`, an event to a workflow, a signal to a flow.",
    ),
    "ask": Entry(
        _ACT,
        "control",
        "Send an event to a workflow, and return what its `on_event` has answered.",
    ),
    "cancel": Entry(
        _ACT,
        "control",
        "Cancel an execution, or a part of it: its handlers run first, then it ends.",
    ),
    "kill": Entry(
        _ACT,
        "control",
        "End an execution at once, whatever its code does.",
    ),
    "pause": Entry(
        _ACT,
        "control",
        "Pause a workflow, which then takes no decisions, or a lane, which then starts nothing.",
    ),
    "resume": Entry(
        _ACT,
        "control",
        "Resume a workflow or a lane after a pause, or a workflow after an error in its code.",
    ),
    "rewind": Entry(
        _ACT,
        "control",
        "Go back to before a step of a workflow; its code runs again from there.",
    ),
    "fork": Entry(
        _ACT,
        "control",
        "Start another workflow with the past of this one before a step.",
    ),
    "retry": Entry(
        _ACT,
        "control",
        "Retry dead letters: those named, those of an execution, or all; or a failed step.",
    ),
    "bury": Entry(
        _ACT,
        "control",
        "Delete dead letters: those named, those of an execution, or all.",
    ),
    "discard": Entry(
        _ACT,
        "control",
        "Forget an event that a workflow keeps: no wait gets it any more.",
    ),
    "delete": Entry(
        _ACT,
        "control",
        "Delete an execution that has ended, with its children and their history.",
    ),
    "bulk": Entry(
        _ACT,
        "control",
        "Do something with all executions that the filters choose; ask with their number first.",
    ),
    "return-task": Entry(
        _ACT,
        "control",
        "Return a task that a tasker holds, with its result.",
    ),
    "fail-task": Entry(
        _ACT,
        "control",
        "Fail a task that a tasker holds.",
    ),
    "pause-schedule": Entry(
        _ACT,
        "control",
        "Suspend a schedule until it is resumed.",
    ),
    "resume-schedule": Entry(
        _ACT,
        "control",
        "Resume a schedule; occurrences missed meanwhile are skipped.",
    ),
    "trigger-schedule": Entry(
        _ACT,
        "control",
        "Do now what a schedule does by the clock.",
    ),
    "delete-schedule": Entry(
        _ACT,
        "control",
        "Delete a schedule; what it has started goes on.",
    ),
    "doctor": Entry(
        _KEEP,
        "doctor",
        "Check versions, extras, limits, the clock and a store; name the fixes.",
    ),
    "purge": Entry(
        _KEEP,
        "maintenance",
        "Delete executions that ended some time ago, with their history.",
    ),
    "verify": Entry(
        _KEEP,
        "maintenance",
        "Look for damage: in the file, and in what its rows say.",
    ),
    "export": Entry(
        _KEEP,
        "maintenance",
        "Write a store to stdout as JSON lines, also while its engine runs.",
    ),
    "import": Entry(
        _KEEP,
        "maintenance",
        "Create a store from JSON lines on stdin.",
    ),
    "backup": Entry(
        _KEEP,
        "maintenance",
        "Copy a store to a new file, also while its engine runs.",
    ),
    "version": Entry(
        _KEEP,
        "maintenance",
        "Print the version of actorflow.",
    ),
    "lab": Entry(
        _BUILD,
        "actorflow.lab.commands:app",
        "Compare batching policies on your traffic: simulate, measure, advise.",
    ),
    "flow": Entry(
        _BUILD,
        "actorflow.flows.service.commands:commands",
        "Run, check, format and trace flows.",
    ),
    "plan": Entry(
        _BUILD,
        "actorflow.plans.commands:commands",
        "Run plans (graphs of jobs), show them, and say why a job runs.",
    ),
    "workflows": Entry(
        _BUILD,
        "workflows",
        "Export recorded workflows, and check new code against them.",
    ),
}
"""All commands. A test compares each line of help with the docstring of the command."""

"""The policy lab: what a batching policy would do with your traffic."""

from actorflow.lab.models.notation import BadNotation
from actorflow.lab.models.policies import parse_policies
from actorflow.lab.models.trace import BadTrace, Trace
from actorflow.lab.recording import Recorder, record
from actorflow.lab.run.advise import Advice, GoalUnreachable, advise
from actorflow.lab.run.measure import measure
from actorflow.lab.run.result import Result, RunFailed
from actorflow.lab.run.simulate import simulate

__all__ = [
    "Advice",
    "BadNotation",
    "BadTrace",
    "GoalUnreachable",
    "Recorder",
    "Result",
    "RunFailed",
    "Trace",
    "advise",
    "measure",
    "parse_policies",
    "record",
    "simulate",
]

"""The policy lab: what a batching policy would do with your traffic."""

from actorflow.lab.models.notation import BadNotation
from actorflow.lab.models.policies import parse_policies
from actorflow.lab.models.trace import BadTrace, Trace
from actorflow.lab.recording import Recorder, record
from actorflow.lab.report.chrome_trace import chrome_trace
from actorflow.lab.report.gallery import plot
from actorflow.lab.run.advise import Advice, GoalUnreachable, advise
from actorflow.lab.run.capacity import Capacity, capacity
from actorflow.lab.run.compare import Comparison, compare
from actorflow.lab.run.fit import ServiceFit, fit
from actorflow.lab.run.measure import measure
from actorflow.lab.run.result import Result, RunFailed
from actorflow.lab.run.simulate import simulate
from actorflow.lab.shadow_accumulator import Shadow, shadow

__all__ = [
    "Advice",
    "BadNotation",
    "BadTrace",
    "Capacity",
    "Comparison",
    "GoalUnreachable",
    "Recorder",
    "Result",
    "RunFailed",
    "ServiceFit",
    "Shadow",
    "Trace",
    "advise",
    "capacity",
    "chrome_trace",
    "compare",
    "fit",
    "measure",
    "parse_policies",
    "plot",
    "record",
    "shadow",
    "simulate",
]

"""Deterministic simulation of a cluster: the real ring and real kinds, in virtual time.

`simulate(kinds, seed=7)` runs them on several workers that share a simulated store, while messages
are lost, workers are killed, clocks differ and the store fails; then it checks that nothing was
lost or done twice.
"""

from actorflow.testing.simulation.cluster import Cancel, Sent
from actorflow.testing.simulation.faults import Fault, Faults, FaultType, Skew
from actorflow.testing.simulation.simulate import History, SimulationFailed, simulate
from actorflow.testing.simulation.store import SimulatedStore
from actorflow.testing.simulation.workflows import simulate_workflows
from actorflow.testing.simulation.world import InvariantBroken

__all__ = [
    "Cancel",
    "Fault",
    "FaultType",
    "Faults",
    "History",
    "InvariantBroken",
    "Sent",
    "SimulatedStore",
    "SimulationFailed",
    "Skew",
    "simulate",
    "simulate_workflows",
]

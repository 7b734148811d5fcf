"""Random trees, random trouble: running supervisors against the naive model."""

from __future__ import annotations

import itertools
import threading
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import actorflow as af
from actorflow.runtime.registry import ACTORS
from tests.runtime.supervision.family.naive import Node, Spec, World, below
from tests.runtime.supervision.kit import BOOM, FAIL, RESTARTS, Stage

PICK = st.integers(0, 1_000)


class Job(af.Executor):
    """A worker that records its start and stop, as `Player` does."""

    def __init__(self, stage: Stage, id_: str) -> None:
        self.stage = stage
        self.id = id_
        self.name = ""

    def on_start(self) -> None:
        outcomes = self.stage.outcomes[self.id]
        if outcomes and outcomes.popleft() is FAIL:
            self.stage.trace.append(f"!{self.id}")
            raise OSError("refused")
        self.name = f"{self.id}{next(self.stage.births[self.id])}"
        self.stage.trace.append(f"+{self.name}")

    def on_stop(self) -> None:
        self.stage.trace.append(f"-{self.name}")

    def handle(self, batch: Any) -> Any:
        (outcome,) = batch
        if isinstance(outcome, af.Stop):
            return outcome
        raise outcome


def leaves(numbers: Any, *, significant: bool) -> st.SearchStrategy[Spec]:
    def build(restart: str, brutal: bool, worker: bool, matters: bool) -> Spec:  # noqa: FBT001
        return Spec(
            f"{'w' if worker else 'p'}{next(numbers)}.",
            restart,
            brutal=brutal,
            significant=matters and significant and restart != "permanent",
            worker=worker,
        )

    return st.builds(build, st.sampled_from(RESTARTS), st.booleans(), st.booleans(), st.booleans())


@st.composite
def trees(draw: st.DrawFn, depth: int = 3, numbers: Any = None) -> Spec:
    numbers = numbers or itertools.count()
    strategy = draw(st.sampled_from(["one_for_one", "one_for_all", "rest_for_one", "dynamic"]))
    modes = ["never", "any_significant", "all_significant"]
    mode = "never" if strategy == "dynamic" else draw(st.sampled_from(modes))
    flags = {
        "strategy": strategy,
        "auto_shutdown": mode,
        "max_restarts": draw(st.sampled_from([1, 3, 0, 50, 50])),
        "within": draw(st.sampled_from([1.0, 5.0])),
    }
    spec = Spec(f"s{next(numbers)}.", draw(st.sampled_from(RESTARTS)), flags=flags)
    if strategy != "dynamic":
        leaf = leaves(numbers, significant=mode != "never")
        for _ in range(draw(st.integers(1, 3))):
            deeper = depth > 1 and draw(st.booleans())
            spec.children.append(draw(trees(depth - 1, numbers)) if deeper else draw(leaf))
    return spec


class Trees(RuleBasedStateMachine):
    """Does the same to a running tree and to the model; both must have done the same."""

    def __init__(self) -> None:
        super().__init__()
        self.before = set(ACTORS._members)
        self.threads = threading.active_count()
        self.stage = Stage()
        self.world = World()
        self.numbers = itertools.count(100)

    # Building.

    def child(self, spec: Spec) -> af.Child:
        options: dict[str, Any] = {"restart": spec.restart, "significant": spec.significant}
        if spec.brutal:
            options["shutdown"] = "brutal_kill"
        if spec.flags is not None:
            return af.Child(spec.id, self.supervisor(spec), **options)
        if spec.worker:
            job = self.stage.worker(spec.id, partial(Job, self.stage, spec.id))
            return af.Child(spec.id, job, **options)
        return self.stage.child(spec.id, **options)

    def supervisor(self, spec: Spec) -> af.Supervisor:
        assert spec.flags is not None
        return self.stage.tree(*map(self.child, spec.children), **spec.flags)

    @initialize(spec=trees())
    def begin(self, spec: Spec) -> None:
        self.root = self.supervisor(spec).start()
        self.node = Node(spec, None)
        self.world.start(self.node)

    # Finding the same child in both.

    def pick(self, number: int, **wanted: bool) -> Node | None:
        found = [
            node
            for node in below(self.node)
            if all(getattr(node, name) is value for name, value in wanted.items())
            and self.all_up(node.parent)
        ]
        return found[number % len(found)] if found else None

    def all_up(self, node: Node | None) -> bool:
        return node is None or (node.up and self.all_up(node.parent))

    def supervisor_of(self, node: Node) -> af.SupervisorRef:
        assert node.parent is not None
        supervisor: af.SupervisorRef = self.ref(node.parent)
        return supervisor

    def ref(self, node: Node) -> Any:
        if node.parent is None:
            return self.root
        supervisor = self.supervisor_of(node)
        if not node.parent.is_dynamic:
            return supervisor.which_child(node.spec.id).ref
        (found,) = (
            info.ref for info in supervisor.which_children() if name_of(info.ref) == node.name
        )
        return found

    # Trouble.

    @precondition(lambda self: self.node.up)
    @rule(number=PICK, clean=st.booleans())
    def leaf_ends(self, number: int, clean: bool) -> None:  # noqa: FBT001
        node = self.pick(number, up=True, is_supervisor=False)
        if node is not None:
            message = af.Stop() if clean else BOOM
            self.ref(node).tell(message)
            if clean:
                self.world.log.append(f"-{node.name}")
            self.world.ended(node, clean=clean)

    @precondition(lambda self: self.node.up)
    @rule(number=PICK)
    def supervisor_is_killed(self, number: int) -> None:
        node = self.pick(number, up=True, is_supervisor=True)
        if node is not None:
            self.ref(node).kill()
            self.world.kill(node)
            self.world.ended(node, clean=False)

    @precondition(lambda self: self.node.up)
    @rule(number=PICK)
    def supervisor_is_stopped(self, number: int) -> None:
        node = self.pick(number, up=True, is_supervisor=True)
        if node is not None:
            self.ref(node).stop(block=False)
            self.world.give_up(node)

    @precondition(lambda self: self.node.up)
    @rule(number=PICK, outcomes=st.lists(st.sampled_from(["fail", "ignore"]), max_size=3))
    def starts_will_fail(self, number: int, outcomes: list[str]) -> None:
        node = self.pick(number, is_supervisor=False)
        if node is not None:
            planned = ["fail"] * len(outcomes) if node.spec.worker else outcomes
            self.world.outcomes[node.spec.id].extend(planned)
            real = {"fail": FAIL, "ignore": af.IGNORE}
            self.stage.outcomes[node.spec.id].extend(real[outcome] for outcome in planned)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.stage.run(seconds)
        self.world.now += seconds

    # Requests.

    def granted(self, call: Any, *arguments: Any) -> bool:
        try:
            call(*arguments)
        except af.RequestRefused:
            return False
        return True

    @precondition(lambda self: self.node.up)
    @rule(number=PICK)
    def terminate(self, number: int) -> None:
        node = self.pick(number)
        if node is not None and node.parent is not None:
            dynamic = node.parent.is_dynamic
            self.supervisor_of(node).terminate_child(self.ref(node) if dynamic else node.spec.id)
            self.world.terminate(node.parent, node)

    @precondition(lambda self: self.node.up)
    @rule(number=PICK)
    def revive(self, number: int) -> None:
        node = self.pick(number, up=False) or self.pick(number)
        if node is not None and node.parent is not None and not node.parent.is_dynamic:
            supervisor = self.supervisor_of(node)
            assert self.granted(supervisor.restart_child, node.spec.id) is self.world.revive(node)

    @precondition(lambda self: self.node.up)
    @rule(number=PICK)
    def delete(self, number: int) -> None:
        node = self.pick(number)
        if node is not None and node.parent is not None and not node.parent.is_dynamic:
            supervisor = self.supervisor_of(node)
            granted = self.granted(supervisor.delete_child, node.spec.id)
            assert granted is self.world.delete(node.parent, node)

    @precondition(lambda self: self.node.up)
    @rule(number=PICK, restart=st.sampled_from(RESTARTS), worker=st.booleans())
    def add(self, number: int, restart: str, worker: bool) -> None:  # noqa: FBT001
        parent = self.pick(number, up=True, is_supervisor=True) or self.node
        spec = Spec(f"n{next(self.numbers)}.", restart, worker=worker)
        supervisor = self.ref(parent)
        granted = self.granted(supervisor.start_child, self.child(spec))
        assert granted is self.world.add(parent, spec)

    # Both must be alike.

    @invariant()
    def alike(self) -> None:
        if not hasattr(self, "root"):
            return
        self.stage.run()
        assert self.stage.trace == self.world.log
        assert self.root.is_alive() is self.node.up
        if self.node.up:
            compare(self.root, self.node)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.root.stop()
            self.stage.run()
            assert set(ACTORS._members) <= self.before
            assert threading.active_count() <= self.threads


def name_of(ref: Any) -> str:
    actor: Any = ref.executor.actor if isinstance(ref, af.WorkerRef) else ref.actor
    name: str = actor.name
    return name


def compare(supervisor: af.SupervisorRef, node: Node) -> None:
    supervisor.actor.family.check()
    assert supervisor.statistics().restarts == node.restarts
    children = list(reversed(supervisor.which_children()))
    assert [info.id for info in children] == [kid.spec.id for kid in node.kids]
    for info, kid in zip(children, node.kids, strict=True):
        assert (info.ref is not None) is kid.up, kid.spec
        if not kid.up:
            continue
        if kid.is_supervisor:
            compare(info.ref, kid)
        else:
            assert name_of(info.ref) == kid.name
            if kid.spec.worker:
                assert supervisor.worker(info.id).status is af.PairState.IDLE


TestRandomTrees = Trees.TestCase
TestRandomTrees.settings = settings(stateful_step_count=40)

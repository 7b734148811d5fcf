"""Random runs of random graphs, as records."""

from __future__ import annotations

from hypothesis import strategies as st

from actorflow.plans.job_record import JobRecord, JobStatus


@st.composite
def runs(draw: st.DrawFn, most: int = 8) -> list[JobRecord]:
    """Draw the records of a run, in an order of the plan that need not be that of the graph."""
    count = draw(st.integers(0, most))
    shuffled = draw(st.permutations(range(count)))
    records = {}
    ends: dict[int, float] = {}
    for at in range(count):
        upstream = draw(st.sets(st.integers(0, at - 1))) if at else set()
        ready = max((ends[each] for each in upstream), default=0.0)
        status = draw(st.sampled_from(JobStatus))
        ran = status in (JobStatus.DONE, JobStatus.FAILED)
        started = ready + draw(st.integers(0, 3))
        ends[at] = started + draw(st.integers(0, 5)) if ran else ready
        records[at] = JobRecord(
            name=f"job-{at}",
            status=status,
            upstream=tuple(f"job-{each}" for each in sorted(upstream)),
            attempts=int(ran),
            worker=str(draw(st.integers(1, 3))) if ran else None,
            ready=ready if ran else None,
            started=started if ran else None,
            ended=ends[at] if ran else None,
        )
    return [records[at] for at in shuffled]

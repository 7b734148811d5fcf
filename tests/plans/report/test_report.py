"""Reports: figures of a run, against naive ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from actorflow.plans.job_record import JobRecord, JobStatus
from actorflow.plans.report.critical_path import critical_path
from actorflow.plans.report.gantt import worker_rows
from actorflow.plans.report.report import Report
from tests.plans.report.graphs import runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def chains(records: Sequence[JobRecord]) -> Iterator[tuple[JobRecord, ...]]:
    """Yield every chain of a graph, the slow way."""
    by_name = {record.name: record for record in records}

    def ending_with(record: JobRecord) -> Iterator[tuple[JobRecord, ...]]:
        yield (record,)
        for name in record.upstream:
            for chain in ending_with(by_name[name]):
                yield (*chain, record)

    for record in records:
        yield from ending_with(record)


@given(runs())
def test_the_critical_path_is_the_longest_chain(records: list[JobRecord]) -> None:
    path = critical_path(records)
    lengths = {
        tuple(each.name for each in chain): sum(each.seconds for each in chain)
        for chain in chains(records)
    }
    assert path.seconds == max(lengths.values(), default=0.0)
    if path.names:
        assert lengths[path.names] == path.seconds
    else:
        assert path.seconds == 0


@given(runs())
def test_the_critical_path_begins_and_ends_with_jobs_that_ran(records: list[JobRecord]) -> None:
    seconds = {record.name: record.seconds for record in records}
    names = critical_path(records).names
    assert not names or (seconds[names[0]] and seconds[names[-1]])


@given(runs())
def test_the_figures_of_a_report_fit_together(records: list[JobRecord]) -> None:
    report = Report(records)
    assert sum(report.counts.values()) == len(records)
    assert report.busy == sum(job.seconds for lane in worker_rows(records) for job in lane.jobs)
    assert report.critical_path.seconds <= report.elapsed
    assert 0 <= report.unused <= 1
    if report.busy:
        assert report.parallelism == pytest.approx(report.busy / report.elapsed)
        assert report.parallelism <= report.parallelism_possible + 1e-9
    text = str(report)
    assert all(record.name in text for record in records)


@given(runs(most=12))
def test_a_lane_has_the_jobs_of_one_worker_in_order(records: list[JobRecord]) -> None:
    found = worker_rows(records)
    assert len({lane.worker for lane in found}) == len(found)
    for lane in found:
        assert {job.worker for job in lane.jobs} == {lane.worker}
        starts = [job.started or 0.0 for job in lane.jobs]
        assert starts == sorted(starts)


def done(name: str, started: float, ended: float, *upstream: str, worker: str = "1") -> JobRecord:
    return JobRecord(
        name=name,
        status=JobStatus.DONE,
        upstream=upstream,
        attempts=1,
        worker=worker,
        ready=0.0,
        started=started,
        ended=ended,
        reason="never ran",
    )


def test_a_report_reads_as_a_summary_and_a_table() -> None:
    records = [
        done("load", 0, 2),
        done("fit[0]", 2, 5, "load"),
        done("fit[1]", 2, 4, "load", worker="2"),
        JobRecord(name="old", status=JobStatus.CACHED, reason="up to date"),
        JobRecord(name="last", status=JobStatus.SKIPPED, reason="job 'bad' failed"),
        JobRecord(
            name="bad",
            status=JobStatus.FAILED,
            attempts=3,
            worker="2",
            ready=4.0,
            started=4.5,
            ended=5.0,
            error="ValueError: no\nmore lines",
        ),
    ]
    assert str(Report(records, workers=2, seconds=6.0)) == (
        "6 jobs in 6 s on 2 workers: 3 done, 1 cached, 1 failed, 1 skipped\n"
        "parallelism 1.2 (the graph allows 1.5), 38% of the workers' time unused\n"
        "critical path 5 s: load -> fit[0]\n"
        "\n"
        "job     status   worker  attempts  waited     ran  why\n"
        "load    done          1         1     0 s     2 s  never ran\n"
        "fit[0]  done          1         1     2 s     3 s  never ran\n"
        "fit[1]  done          2         1     2 s     2 s  never ran\n"
        "old     cached        -         -       -       -  up to date\n"
        "last    skipped       -         -       -       -  job 'bad' failed\n"
        "bad     failed        2         3  500 ms  500 ms  ValueError: no"
    )


def test_of_many_jobs_the_slowest_and_the_failed_are_shown() -> None:
    records = [done(f"job-{at}", 0, at) for at in range(1, 101)]
    records.append(JobRecord(name="quick", status=JobStatus.FAILED, started=0.0, ended=0.0))
    text = str(Report(records))
    assert text.endswith("... and 80 more")
    assert "\nquick " in text
    assert "\njob-81 " in text
    assert "\njob-80 " not in text
    assert [record.name for record in Report(records).slowest(2)] == ["job-100", "job-99"]
    assert "more" not in Report(records).table()


def test_a_long_critical_path_is_shortened() -> None:
    records = [done("job-0", 0, 1)]
    records += [done(f"job-{at}", at, at + 1, f"job-{at - 1}") for at in range(1, 10)]
    assert "job-0 -> job-1 -> job-2 -> (4 more) -> job-7 -> job-8 -> job-9" in str(Report(records))


def test_an_empty_plan_has_a_report() -> None:
    assert str(Report([])) == "0 jobs in 0 s on 0 workers: nothing to do"

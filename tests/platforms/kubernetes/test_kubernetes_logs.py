"""What `holdfast logs` makes of the logs of pods: times, ranks, and those that are asked for."""

from __future__ import annotations

import pytest

from holdfast.cli.options.job_filter import parse_moment
from holdfast.platforms.kubernetes.client.pod_log_tail import lines_in, query_of, timed
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.api_records import Pod, PodPhase
from holdfast.platforms.kubernetes.objects.job_status import ClusterJob, ClusterJobState
from holdfast.platforms.kubernetes.remote.cluster_jobs import ClusterJobView
from holdfast.report.merged_logs import stamp

POD = Pod(
    name="train-0",
    uid="u",
    phase=PodPhase.RUNNING,
    labels={object_names.PART: object_names.AGENT, object_names.NODE: "0"},
)
LOOKED = ClusterJobView(
    job=ClusterJob(name="train", namespace="ns", uid="u", state=ClusterJobState.RUNNING, created=0.0)
)
AT = 1_795_428_601_000_000_000


@pytest.mark.parametrize(
    ("line", "at", "text"),
    [
        (b"2026-11-23T10:10:01.123456789Z a b\n", AT + 123_456_789, b"a b\n"),
        (b"2026-11-23T10:10:01.12Z x\n", AT + 120_000_000, b"x\n"),
        (b"2026-11-23T10:10:01Z x", AT, b"x"),
        (b"2026-11-23T11:40:01.5+01:30 x\n", AT + 500_000_000, b"x\n"),
        (b"2026-11-23T08:10:01-02:00 x\n", AT, b"x\n"),
        (b"2026-11-23T10:10:01Z \n", AT, b"\n"),
        (b"no time here\n", None, b"no time here\n"),
        (b"2026-11-23T10:10 x\n", None, b"2026-11-23T10:10 x\n"),
        (b"\n", None, b"\n"),
    ],
)
def test_the_time_in_front_of_a_line_is_read_to_the_nanosecond(line: bytes, at: int | None, text: bytes) -> None:
    assert timed(line) == (at, text)


def test_lines_come_whole_however_the_blocks_are_cut() -> None:
    text = b"one\rtwo\nthree\n\nlast"
    for size in range(1, len(text) + 1):
        blocks = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(lines_in(blocks)) == [b"one\rtwo\n", b"three\n", b"\n", b"last"]


@pytest.mark.extras
def test_the_server_is_asked_for_whole_seconds_and_the_rest_is_looked_at_here() -> None:
    from holdfast.platforms.kubernetes.remote.cluster_logs import PodLogFilter
    from holdfast.platforms.remote_jobs import RemoteLineFilter

    assert query_of(POD, since=AT / 1e9 + 0.7, lines=None) == {
        "container": object_names.TASK,
        "timestamps": "true",
        "sinceTime": "2026-11-23T10:10:01Z",
    }
    chosen = PodLogFilter(LOOKED, RemoteLineFilter(since=AT / 1e9 + 0.7, until=AT / 1e9 + 2))
    shown = [chosen.line(POD, AT + tenths * 100_000_000, b"x\n") is not None for tenths in (0, 6, 8, 19, 20, 25)]
    assert shown == [False, False, True, True, False, False]


@pytest.mark.extras
def test_a_search_is_in_what_the_worker_wrote() -> None:
    from holdfast.platforms.kubernetes.remote.cluster_logs import PodLogFilter
    from holdfast.platforms.remote_jobs import RemoteLineFilter

    chosen = PodLogFilter(LOOKED, RemoteLineFilter(fits=lambda text: text.startswith(b"loss")))
    found = chosen.line(POD, AT, b"[worker-13] loss 0.5\n")
    assert found is not None
    assert (found.role, found.rank, found.text, found.at) == ("worker", 13, b"loss 0.5", AT / 1e9)
    assert chosen.line(POD, AT, b"[worker-13] no loss\n") is None


@pytest.mark.extras
def test_a_time_as_it_is_printed_means_its_own_line_too() -> None:
    from holdfast.platforms.kubernetes.remote.cluster_logs import PodLogFilter
    from holdfast.platforms.remote_jobs import RemoteLineFilter

    [shown] = filter(None, [PodLogFilter(LOOKED, RemoteLineFilter()).line(POD, AT + 500_600_000, b"x\n")])
    printed = parse_moment(stamp(shown.at), 0.0, "--since")
    assert PodLogFilter(LOOKED, RemoteLineFilter(since=printed)).line(POD, AT + 500_600_000, b"x\n") is not None
    assert PodLogFilter(LOOKED, RemoteLineFilter(since=printed)).line(POD, AT + 499_000_000, b"x\n") is None

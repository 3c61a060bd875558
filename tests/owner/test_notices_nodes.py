"""`--on-event` and `--on-end` of a job over several nodes: the owner runs them, and what its death changes."""

from __future__ import annotations

from functools import partial

import pytest

from drilling import ClusterOf
from netns import kill

pytestmark = [pytest.mark.real, pytest.mark.drill]


def test_the_owner_alone_tells_each_event_once_and_the_next_owner_goes_on(cluster: ClusterOf) -> None:
    job = cluster(3)
    told, end = job.out.parent / "told", job.out.parent / "end"
    event = f'echo "$HOLDFAST_EVENT $HOLDFAST_NOTICE_ATTEMPT" >> {told}'
    # Every node is given the commands, as with one command line for all of them.
    job.run_all("--nnodes", "3", "--max-restarts", "2", "--on-event", event, "--on-end", f"cat >> {end}; echo >> {end}")
    job.common_step(1)
    job.order(1, "kill")
    job.common_step(2)
    kill(*job.net[1].named("holdfast-owner"))
    job.wait(partial(job.adopted, 1), "the agents have confirmed the attempt to the second owner")
    job.order(1, "kill")
    job.common_step(3)
    job.finish()
    assert job.end() == {1: 0, 2: 0, 3: 0}
    assert told.read_text().split("\n") == [
        "job_started ",
        "attempt_ended 1",
        "job_continued ",
        "attempt_ended 2",
        "attempt_ended 3",
        "job_ended ",
        "",
    ]
    assert end.read_text().count('"event":"job_ended"') == 1

"""The ten tests that depend most on when things happen, on a machine whose load is twenty."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOAD = 20
#: They wait for leases, graces, silences and prompts, which a slow machine makes longer than the limits around them.
DELICATE = (
    "act/test_wards.py::test_an_agent_that_is_killed_is_started_again_after_its_workers_are_dead",
    "main/test_nodes_deaths.py::test_an_agent_that_hangs_is_killed_with_its_workers_when_its_lease_is_over",
    "main/test_nodes_deaths.py::test_an_owner_that_is_killed_while_a_rank_dies_still_names_it",
    "main/test_nodes_deaths.py::test_a_spare_takes_the_place_of_a_node_whose_guard_was_killed",
    "main/test_nodes_processes.py::test_a_gang_that_does_not_come_up_in_time_ends_with_251_and_says_who_came",
    "main/test_run_leaving.py::test_a_rank_that_catches_sigterm_saves_with_its_helpers",
    "main/test_run_signals.py::test_a_stop_that_only_seemed_to_come_to_all_reaches_the_workers_at_half_of_the_grace",
    "observe/test_hang_real.py::test_silent_work_is_not_a_hang[child]",
    "platforms/ssh/test_ssh_run.py::test_a_host_that_never_says_hello_is_named",
    "report/test_terminal.py::test_ctrl_c_at_a_prompt_stops_the_job_and_leaves_the_terminal_as_it_was",
)


@pytest.mark.stress
def test_the_most_delicate_tests_pass_under_a_load_of_twenty() -> None:
    with subprocess.Popen(["stress", "--quiet", "--cpu", str(LOAD)]) as load:
        try:
            ran = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "4", "--everything"]
                + [f"tests/{test}" for test in DELICATE],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            load.terminate()
    assert ran.returncode == 0, ran.stdout + ran.stderr

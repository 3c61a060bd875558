"""Fault rules and codes that are edited while a job runs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from fault_runs import STAYS, Live

from conftest import Holdfast, wait_for

pytestmark = pytest.mark.real

SHORT_GRACE = "grace: {save_s: 5, heal_s: 1}\n"


def edit(path: Path, text: str) -> None:
    """As an editor does: a new file takes the old one's name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


def line_with(live: Live, words: str) -> str:
    """The first line of the run with these words."""
    assert live.process.stderr is not None
    while words not in (line := live.process.stderr.readline()):
        assert line, f"the run ended and never said: {words}"
    return line


def start_watched(holdfast: Holdfast, codes: str) -> tuple[Live, Path]:
    (holdfast.dir / "codes.yaml").write_text(codes)
    live = Live(holdfast, STAYS, HOLDFAST_FAULT_CODES="codes.yaml")
    # The rules are watched from the moment at which the socket opens, which is after the workers are up.
    [job] = (holdfast.home / "jobs").iterdir()
    deadline = time.monotonic() + 60
    while not (job / "faults.sock").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return live, holdfast.dir / "codes.yaml"


def finish(live: Live, *attempts: int) -> tuple[int, int, str]:
    for attempt in attempts:
        (live.holdfast.dir / f"end-{attempt}").touch()
    ran = live.holdfast.finish(live.process)
    return ran.status, len(ran.report["attempts"]), ran.err


def test_an_edited_code_list_stops_the_job_at_once(holdfast: Holdfast) -> None:
    live, codes = start_watched(holdfast, "codes: {TRIAL-1: AVOID}\n")
    live.fault("TRIAL-1")
    edit(codes, "codes: {TRIAL-1: ISOLATE}\n")
    wait_for(holdfast.dir / "up-2-0")
    status, attempts, err = finish(live, 2)
    assert (status, attempts, live.visible(2)) == (0, 2, "1,2,3")
    assert "was edited: its codes and rules are in force" in err


def test_an_edit_of_a_wrong_format_means_the_default_configuration_and_says_so_loudly(holdfast: Holdfast) -> None:
    live, codes = start_watched(holdfast, "codes: {TRIAL-1: NONE}\n")
    live.fault("TRIAL-1")
    edit(codes, "codes: {TRIAL-1: [broken\n")
    assert "the default configuration applies" in line_with(live, "IS NOT USED")
    # A code that the default configuration does not know isolates its device.
    wait_for(holdfast.dir / "up-2-0")
    assert finish(live, 2)[:2] == (0, 2)


def test_a_rule_file_that_is_gone_keeps_what_was_in_force_and_says_so_loudly(holdfast: Holdfast) -> None:
    live, codes = start_watched(holdfast, "codes: {TRIAL-1: NONE}\n")
    codes.unlink()
    assert "what was in force before stays" in line_with(live, "IS NOT USED")
    del live.env["HOLDFAST_FAULT_CODES"]  # by the rules in force
    live.fault("TRIAL-1")
    os.mkfifo(codes)
    edit(codes, "codes: {TRIAL-1: ISOLATE}\n")
    line_with(live, "was edited")
    wait_for(holdfast.dir / "up-2-0")
    assert finish(live, 2)[:2] == (0, 2)


def test_counts_go_on_over_an_edit_of_a_wrong_format(holdfast: Holdfast) -> None:
    """Of a code that the default configuration counts too."""
    rules = holdfast.dir / "rules.yaml"
    rules.write_text("")
    live, _ = start_watched(holdfast, "codes: {80E18005: NONE}\n")
    rule = "frequency: [{codes: [80E18005], times: 3, window_s: 3600, remedy: HOLD}]\n" + SHORT_GRACE
    edit(rules, rule)
    line_with(live, "was edited")
    for _ in range(2):
        live.fault("80E18005", "--once")
    edit(rules, rule.replace("3600", "[no"))
    line_with(live, "the default configuration applies")
    edit(rules, rule)
    line_with(live, "was edited")
    live.fault("80E18005", "--once")
    wait_for(holdfast.dir / "up-2-0")
    assert finish(live, 2)[:2] == (0, 2)


def test_counts_go_on_over_an_edit(holdfast: Holdfast) -> None:
    (holdfast.dir / "rules.yaml").write_text("")
    live, _ = start_watched(holdfast, "codes: {TRIAL-1: NONE}\n")
    rule = "frequency: [{codes: [TRIAL-1], times: %d, window_s: 3600, remedy: HOLD}]\n" + SHORT_GRACE
    edit(holdfast.dir / "rules.yaml", rule % 9)
    line_with(live, "was edited")
    for _ in range(2):
        live.fault("TRIAL-1", "--once")
    edit(holdfast.dir / "rules.yaml", rule % 3)
    line_with(live, "was edited")
    live.fault("TRIAL-1", "--once")
    wait_for(holdfast.dir / "up-2-0")
    assert finish(live, 2)[:2] == (0, 2)
    told = holdfast.finish(holdfast.start("devices", "--json", **live.env))
    assert {row["device"]: row["standing"] for row in json.loads(told.out)["devices"]}["gpu0"] == "HELD"

"""`explain --why`, `show --verbose` and `exits --try`: why it is this class, within one screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from holdfast.cli.exits import command as exits
from holdfast.cli.explain import command as explain
from holdfast.errors import BadUsage
from holdfast.explain import explain as explained
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import Culprit, ExitReport
from holdfast.report.brief_report import render_exit
from holdfast.report.failure_place import FailurePlace

LOG = """\
2026-11-20 22:00:00,123 [INFO] trainer: step 1 loss 2.3
Traceback (most recent call last):
  File "/app/train.py", line 88, in <module>
    main()
OSError: [Errno 28] No space left on device: '/scratch/ckpt'
terminate called without an active exception
*** Process received signal ***
Signal: Aborted (6)
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "job.log"
    path.write_text(LOG)
    return str(path)


def test_why_prints_rule_row_wording_line_and_rivals_within_a_screen(log: str) -> None:
    text = CliRunner().invoke(explain, ["--why", log]).output
    lines = text.splitlines()
    assert len(lines) <= 24
    begin = next(at for at, line in enumerate(lines) if line.startswith("  why "))
    told = " ".join(" ".join(lines[begin:]).split())
    assert "DiskFull by the rule `only_logs`, wording errno-28" in told
    assert f"{log}:5: OSError: [Errno 28] No space left on device" in told
    assert "not NativeCrash" in told
    assert "counts less than the exception that ended the program" in told


def test_without_the_option_nothing_of_this_is_printed(log: str) -> None:
    assert "  why " not in CliRunner().invoke(explain, [log]).output


def test_a_class_without_rivals_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("OSError: [Errno 28] No space left on device\n")
    text = CliRunner().invoke(explain, ["--why", str(tmp_path / "a.log")]).output
    assert "  not      no line of another class was found" in text


def test_try_shows_every_row_that_matches_in_the_order_of_lines(log: str) -> None:
    lines = CliRunner().invoke(exits, ["--try", log]).output.splitlines()
    numbers = [int(line.split(":")[1]) for line in lines if line.startswith(log)]
    assert numbers == [5, 6, 7, 8]
    assert lines[0].startswith(f"{log}:5: OSError")
    assert "    DiskFull  errno-28 (first_hand)" in lines[1 : lines.index(f"{log}:6: {LOG.splitlines()[5]}")]
    assert lines[-1].endswith(f"holdfast explain --why {log}")


def test_try_names_the_condition_that_does_not_hold(tmp_path: Path) -> None:
    rows = tmp_path / "rows.yaml"
    rows.write_text(
        "exits:\n- phrase: FluxLost\n  code: 178\n  blame: hardware\n  rerun: later\n  what: the flux is gone\n"
        "  reason: the flux is gone\n  solution: wait\n  wordings:\n"
        "  - {id: flux, pattern: 'flux lost', unless: 'flux is back', samples: ['flux lost']}\n"
    )
    (tmp_path / "a.log").write_text("flux lost\nthe flux is back\n")
    found = CliRunner().invoke(exits, ["--exits", str(rows), "--try", str(tmp_path / "a.log")]).output
    assert "FluxLost  flux (first_hand), but a line has its `unless`" in found


def test_try_prints_json(log: str) -> None:
    found = json.loads(CliRunner().invoke(exits, ["--try", log, "--json"]).stdout)
    assert (found["schema"], found["log"]) == ("holdfast.matches/1", log)
    told = [(each["line"], each["wording"], each["counts"]) for each in found["matches"]]
    assert (5, "errno-28", True) in told


def test_try_takes_one_log_and_no_words(log: str) -> None:
    found = CliRunner().invoke(exits, ["--try", log, "DiskFull"])
    assert isinstance(found.exception, BadUsage)
    assert "--try takes a log and nothing else" in str(found.exception)


def of_log(text: str) -> ExitReport:
    return explained(AttemptEvidence(workers=(WorkerEvidence(log=LogExcerpt(source="job.log", text=text)),)))


def test_a_class_that_is_more_probably_wrong_is_called_likely() -> None:
    report = of_log('Traceback (most recent call last):\n  File "a.py", line 1, in f\nflux.FluxError: no flux\n')
    assert report.confidence < 0.5
    text = render_exit(report, FailurePlace())
    assert text.startswith("likely UserException: ")
    assert "class    likely UserException (exit code" in text
    assert "likely" not in render_exit(replace(report, confidence=0.8), FailurePlace())


def test_a_mistake_in_python_is_not_called_likely() -> None:
    report = of_log("Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'warmup'\n")
    assert report.confidence > 0.5
    assert "likely" not in render_exit(report, FailurePlace())


def test_of_a_rank_that_may_not_be_the_first_the_rank_is_called_likely() -> None:
    report = replace(of_log("KeyError: 1"), first=Culprit(role="worker", rank=3, node=""), confidence=0.3)
    report = replace(report, because=replace(report.because, rule="culprit_among_peers"))
    text = render_exit(report, FailurePlace())
    assert "likely rank 3" in text
    assert "likely UserException" not in text

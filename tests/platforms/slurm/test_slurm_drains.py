"""What follows for a node of Slurm's from its checks, and what slurmd leaves out is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.faults import DeviceStanding, Standing
from holdfast.platforms.slurm import node_health
from holdfast.platforms.slurm.node_health import CheckCaller, use_of
from holdfast.platforms.slurm.text.node_treatment import REASON_LETTERS, SlurmNodeAction, is_ours, reason_of, treat
from holdfast.platforms.slurm.text.scontrol_records import NodeRecord
from holdfast.record.held_devices import notes, publish

GPU = ("standing: gpu3 is HELD: Xid 79",)


def node_record(*states: str, reason: str = "", by: str = "root") -> NodeRecord:
    return NodeRecord(name="n1", states=frozenset(states), reason=reason, reason_by=by if reason else "")


def test_a_node_that_works_is_drained_with_the_reason() -> None:
    done = treat(node_record("IDLE"), GPU, gives_back=False)
    said = "reason=holdfast: standing: gpu3 is HELD: Xid 79"
    assert (done.doing, done.command) == (
        SlurmNodeAction.DRAIN,
        ("scontrol", "update", "nodename=n1", "state=drain", said),
    )


@pytest.mark.parametrize(
    "record",
    [
        node_record("IDLE", "DRAIN", reason="replacing a fan", by="ada"),
        node_record("IDLE", "DRAIN"),
        node_record("MIXED", "DRAIN", reason="Kill task failed"),
        node_record("DOWN", reason="Not responding"),
        node_record("DOWN", "DRAIN", reason="broken board"),
        node_record("IDLE", "DRAIN", reason="holdfast: disk: no room"),
    ],
    ids=lambda record: f"{'+'.join(sorted(record.states))} {record.reason}",
)
def test_what_is_drained_or_down_is_left_as_it_is(record: NodeRecord) -> None:
    done = treat(record, GPU, gives_back=True)
    assert (done.doing, done.command) == (SlurmNodeAction.NOTHING, ())


def test_an_operators_note_on_a_node_that_works_is_kept_behind_the_reason() -> None:
    done = treat(node_record("IDLE", reason="new board since May"), ("standing: " + "x" * 400,), gives_back=False)
    reason = done.command[-1].removeprefix("reason=")
    assert reason.endswith("… (before: new board since May)")
    assert len(reason.encode()) <= REASON_LETTERS


def test_only_holdfasts_own_drain_is_taken_back_and_only_where_asked() -> None:
    ours, theirs = (
        node_record("IDLE", "DRAIN", reason="holdfast: disk: no room"),
        node_record("IDLE", "DRAIN", reason="holdfasting"),
    )
    assert (is_ours(ours), is_ours(theirs)) == (True, False)
    assert treat(ours, (), gives_back=True).doing is SlurmNodeAction.RESUME
    assert treat(ours, (), gives_back=False).doing is SlurmNodeAction.NOTHING
    assert treat(theirs, (), gives_back=True).doing is SlurmNodeAction.NOTHING
    assert treat(node_record("IDLE"), (), gives_back=True).said == ""


def test_a_reason_is_one_bounded_line_that_no_shell_takes_apart() -> None:
    reason = reason_of(('disk: "a\nb"\x1b[2J\\', "é" * 300))
    assert reason.startswith("holdfast: disk: 'a")
    assert len(reason.encode()) <= REASON_LETTERS
    assert reason.isprintable()
    assert not set(reason) & set('"\\\n')


# ---------------------------------------------------------------------------------------------- slurmd's environment


@pytest.mark.parametrize(
    ("environ", "use"),
    [
        ({"SLURMD_NODENAME": "n1", "PWD": "/"}, CheckCaller.HEALTH),
        ({"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}, CheckCaller.PROLOG),
        ({"SLURM_JOB_ID": "7", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, CheckCaller.PROLOG),
        ({"SLURM_JOB_ID": "7", "SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}, CheckCaller.EPILOG),
        ({"HOME": "/root"}, CheckCaller.PERSON),
    ],
)
def test_which_of_slurms_hooks_it_is(environ: dict[str, str], use: CheckCaller) -> None:
    assert use_of(environ) is use


def test_the_option_comes_first_then_slurm_conf_then_the_usual_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setattr(node_health, "CONFIGS", (tmp_path / "none.conf", tmp_path / "slurm.conf"))
    found = [{"SLURM_CONF": "/env"}, {"SLURM_CONF": "/env"}, {}]
    given = [node_health.furnish(found[0], "/option"), *(node_health.furnish(each, None) for each in found[1:])]
    assert given == ["/option", "/env", str(tmp_path / "slurm.conf")]
    assert [each["SLURM_CONF"] for each in found] == given
    assert found[2]["PATH"] == node_health.PATH


def test_no_slurmd_above_is_no_configuration() -> None:
    assert node_health.of_slurmd(os.getpid()) == ""


# ---------------------------------------------------------------------------------------------- jobs' own word


def test_a_note_is_the_word_of_its_files_owner(tmp_path: Path) -> None:
    npu0 = DeviceStanding(device="npu0", node="n1", standing=Standing.HELD, reason="three times")
    others = (
        DeviceStanding(device="npu1", node="n2", standing=Standing.HELD),
        DeviceStanding(device="npu2", node="n1"),
    )
    publish("n1", (npu0, *others), tmp_path / "none")
    assert not (tmp_path / "none").exists(), "without the administrator's folder nothing is written"
    publish("n1", (npu0, *others), tmp_path)
    [(uid, note)] = notes("n1", tmp_path)
    assert (uid, note.devices) == (os.geteuid(), (npu0,))
    assert notes("n2", tmp_path) == []

    (tmp_path / f"n1.{uid}.json").rename(tmp_path / f"n1.{uid + 1}.json")
    assert notes("n1", tmp_path) == [], "a file of another user than its name says"
    (tmp_path / "n1.7.json").symlink_to(tmp_path / f"n1.{uid + 1}.json")
    (tmp_path / f"n1.{uid}.json").write_text("{")
    assert notes("n1", tmp_path) == []


def test_what_a_note_says_is_one_harmless_bounded_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = DeviceStanding(device="npu0\x1b[2J\n" + "x" * 100, node="n1", standing=Standing.HELD, reason="a\nb" * 200)
    publish("n1", (bad,), tmp_path)
    monkeypatch.setattr(node_health, "notes", lambda node: notes(node, tmp_path))
    monkeypatch.setattr(node_health, "make_folder", lambda: None)
    [said] = node_health.told_by_jobs("n1", None)
    assert said.startswith("npu0")
    assert said.isprintable()
    assert len(said) < 400
    assert node_health.told_by_jobs("n1", [os.geteuid() + 1]) == []
    assert node_health.told_by_jobs("n1", []) == []


def test_a_note_goes_with_the_last_hold(tmp_path: Path) -> None:
    npu0 = DeviceStanding(device="npu0", node="n1", standing=Standing.HELD)
    publish("n1", (npu0,), tmp_path)
    publish("n1", (), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hook", [{"SLURMD_NODENAME": "n1"}, {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}, {}])
def test_a_broken_configuration_is_no_failure_of_the_node(tmp_path: Path, hook: dict[str, str]) -> None:
    """As a prolog's exit status it would drain one node after the other."""
    (tmp_path / "config.yaml").write_text("checks: {")
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast", "check", "--slurm", "--drain"],
        env={**hook, "HOLDFAST_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == (0 if hook else 2)
    assert "config.yaml" in ran.stderr
    assert ("shows nothing about the node" in ran.stderr) == bool(hook)

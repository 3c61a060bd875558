"""What holdfast keeps is the user's alone: modes, homes that others can write to, and secrets."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Holdfast
from holdfast.explain.text.secret_filter import without_secrets
from holdfast.explain.text.secret_masking import mask, mask_text, masked
from holdfast.file_modes import distrust
from holdfast.model.job_spec import JobSpec, Role
from secret_texts import ORDINARY, SECRETS

IS_ROOT = os.geteuid() == 0


def modes(place: Path) -> dict[str, int]:
    return {str(each.relative_to(place)): stat.S_IMODE(each.lstat().st_mode) for each in (place, *place.rglob("*"))}


def loose(place: Path) -> dict[str, str]:
    """Everything under `place` that another user could read or write."""
    return {name: f"{mode:04o}" for name, mode in modes(place).items() if mode & 0o077}


@pytest.mark.real
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o002])
def test_everything_is_private_whatever_the_umask_and_workers_keep_theirs(holdfast: Holdfast, umask: int) -> None:
    holdfast.home.mkdir(mode=0o700)
    holdfast.home.chmod(0o755)
    script = holdfast.script("import os, sys\nprint('umask', oct(os.umask(0)))\nsys.exit(3)\n")
    report = holdfast.dir / "asked.json"
    before = os.umask(umask)
    try:
        ran = holdfast.run("--max-restarts", "0", "--report", report, script)
        shown = holdfast("jobs")
    finally:
        os.umask(before)
    assert (ran.status, shown.status) == (255, 0)
    assert f"umask {oct(umask)}" in ran.out
    assert loose(holdfast.home) == {}
    assert stat.S_IMODE(report.stat().st_mode) == 0o666 & ~umask


@pytest.mark.real
def test_a_database_of_an_earlier_release_is_closed(holdfast: Holdfast) -> None:
    script = holdfast.script("print('ok')\n")
    assert holdfast.run(script).status == 0
    (holdfast.home / "holdfast.db").chmod(0o644)
    assert holdfast.run(script).status == 0
    assert loose(holdfast.home) == {}


EVIL = "from pathlib import Path\nPath({mark!r}).write_text('evil ran')\n"


def planted(home: Path, mark: Path) -> None:
    (home / "evil.py").write_text(EVIL.format(mark=str(mark)))
    (home / "config.yaml").write_text(f"plugin: [{home / 'evil.py'}]\nmax-restarts: 7\n")


@pytest.mark.real
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_home_that_others_can_write_to_is_not_used(holdfast: Holdfast, tmp_path: Path, mode: int) -> None:
    mark = tmp_path / "mark"
    holdfast.home.mkdir()
    planted(holdfast.home, mark)
    holdfast.home.chmod(mode)
    ran = holdfast.run(holdfast.script("print('done')\n"), TMPDIR=str(tmp_path))
    assert ran.status == 0, ran.err
    assert f"chmod 700 {holdfast.home}" in ran.err
    assert not mark.exists()
    assert sorted(path.name for path in holdfast.home.iterdir()) == ["config.yaml", "evil.py"]
    [stand_in] = tmp_path.glob("holdfast-*")
    assert (stand_in / "holdfast.db").exists()
    assert loose(stand_in) == {}
    shown = holdfast("jobs")
    assert (shown.status, f"chmod 700 {holdfast.home}" in shown.err) == (2, True)
    settings = holdfast("config", "--json")
    assert settings.status == 0
    assert "config.yaml is not used" in settings.err
    assert "evil.py" not in settings.out


@pytest.mark.real
@pytest.mark.skipif(not IS_ROOT, reason="only root can mount")
def test_a_fresh_file_system_as_home_becomes_private(holdfast: Holdfast) -> None:
    holdfast.home.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", holdfast.home], check=False).returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        assert stat.S_IMODE(holdfast.home.stat().st_mode) == 0o1777
        ran = holdfast.run(holdfast.script("print('done')\n"))
        assert (ran.status, loose(holdfast.home)) == (0, {})
        assert "not used" not in ran.err
    finally:
        subprocess.run(["umount", "-l", holdfast.home], check=True)


@pytest.mark.real
@pytest.mark.skipif(not IS_ROOT, reason="only root can give a directory to another user")
def test_a_home_of_another_user_is_not_used(holdfast: Holdfast, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    holdfast.home.mkdir(mode=0o700)
    planted(holdfast.home, mark)
    os.chown(holdfast.home, 65534, 65534)
    ran = holdfast.run(holdfast.script("print('done')\n"), TMPDIR=str(tmp_path))
    assert ran.status == 0
    assert "belongs to another user (uid 65534)" in ran.err
    assert not mark.exists()


def test_a_sticky_parent_is_fine(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    assert distrust(home) == ""
    assert distrust(tmp_path / "missing") == ""
    assert "everyone can write" in distrust(tmp_path)


@pytest.mark.real
@pytest.mark.skipif(not IS_ROOT, reason="only root can make every file system read-only")
def test_a_job_runs_where_nothing_can_be_written(tmp_path: Path) -> None:
    """A container with a read-only root and no other mount."""
    inside = tmp_path / "inside.sh"
    command = f"{sys.executable} -m holdfast run --no-checks --max-restarts 0 --no-python -- sh -c 'echo out; exit 3'"
    inside.write_text(
        textwrap.dedent(f"""
        mount --bind / /mnt && mount -o remount,bind,ro /mnt || exit 99
        mount -t proc proc /mnt/proc && mount --bind /dev /mnt/dev && mount -o remount,bind,ro /mnt/dev || exit 99
        for place in /dev/shm /run /tmp; do mount --bind -o ro /mnt$place /mnt$place 2>/dev/null; done
        cd / && HOLDFAST_HOME=/root/x exec chroot /mnt {command}
        """)
    )
    ran = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "bash", str(inside)], capture_output=True, text=True, timeout=60
    )
    if ran.returncode in (1, 99, 127) and "unshare" in ran.stderr + ran.stdout:
        pytest.skip(f"this machine makes no mount namespace: {ran.stderr}")
    assert (ran.returncode, "[worker-0] out" in ran.stdout) == (255, True), ran.stderr
    assert "no log is kept" in ran.stderr
    assert "  class    Unexplained (exit code 255)" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "/proc/holdfast" not in ran.stderr


@pytest.mark.real
def test_no_secret_reaches_the_journal_or_a_report(holdfast: Holdfast) -> None:
    lines = [text for text, _ in SECRETS]
    script = holdfast.script(
        f"import sys\nfor line in {lines!r}:\n    print(line, flush=True)\n"
        "    print(line, file=sys.stderr, flush=True)\n"
        f"raise ValueError({lines[0]!r})\n"
    )
    ran = holdfast.run("--max-restarts", "0", script, "--api-key", "zzARGVzz", "--token=zzTOKENzz")
    assert ran.status == 236
    kept = [
        path for path in holdfast.home.rglob("*") if path.is_file() and not path.name.startswith(("stdout", "stderr"))
    ]
    assert any(path.name == "holdfast.db" for path in kept)
    for path in kept:
        data = path.read_bytes()
        for secret in ("zzARGVzz", "zzTOKENzz", *(secret for _, secret in SECRETS)):
            assert secret.encode() not in data, f"{secret} stands in {path}"


def test_a_job_files_environment_is_masked_by_its_names() -> None:
    role = Role(name="w", count=1, command=("t.py", "--api-key", "abcdef"), env={"WANDB_API_KEY": "abcd", "A": "b"})
    [kept] = masked(JobSpec(name="x", roles=(role,))).roles
    assert kept.command == ("t.py", "--api-key", "***")
    assert kept.env == {"WANDB_API_KEY": "***", "A": "b"}


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_each_secret_is_masked_as_a_text_and_as_words(text: str, secret: str) -> None:
    for found in (masked(text), masked(masked(text)), masked("\n".join([*ORDINARY_STEPS, text]))):
        assert secret not in found, found
    if not text[0].isalpha() or ":" in text.split()[0]:
        return  # no command
    words = tuple(shlex.split(text))
    assert not any(secret in word for word in masked(words)), masked(words)
    event = Role(name="w", count=1, command=words)
    assert secret not in str(without_secrets(event)), "a quick look has not seen it"


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text
    words = tuple(text.split())
    assert masked(words) == words
    long = "\n".join([*ORDINARY_STEPS, text])
    assert masked(long) == long


def test_what_holds_no_secret_stays_the_same_object() -> None:
    spec = JobSpec(name="x", roles=(Role(name="w", count=1, command=("t.py",)),))
    assert masked(spec) is spec


ORDINARY_STEPS = [f"step {number} loss 2.3269 tokens/s {number * 7} lr 1e-4" for number in range(12)]


@given(st.lists(st.sampled_from([*ORDINARY_STEPS, *(text for text, _ in SECRETS)]), min_size=1, max_size=60))
def test_long_texts_are_masked_like_short_ones(lines: list[str]) -> None:
    text = "\n".join([*ORDINARY_STEPS, *lines])
    found = mask_text(text)
    assert found == mask(text)
    assert json.dumps(found)

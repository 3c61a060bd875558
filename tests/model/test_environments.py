"""What is kept of a worker's environment: no secret, and what differs between two attempts."""

from __future__ import annotations

import json
import os
import stat
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.act.worker_environment import keep_environment
from holdfast.explain.text.secret_masking import mask
from holdfast.model.environment_diff import FILE, HIDDEN, MOST_BYTES, Difference, differences, kept

VARIABLES = st.dictionaries(
    st.text(string.ascii_letters + "_", min_size=1, max_size=12),
    st.one_of(
        st.text(string.printable, max_size=30),
        st.from_regex(
            r"(ghp_[A-Za-z0-9]{20}|AKIA[0-9A-Z]{16}|https?://user:[a-z]{8}@host/x|hf_[A-Za-z0-9]{12})", fullmatch=True
        ),
    ),
)


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "HOLDFAST_SECRET_x", "SSH_AUTH_SOCK", "PGPWD"]
)
def test_a_variable_whose_name_speaks_of_a_secret_keeps_its_name_alone(name: str) -> None:
    assert kept({name: "plain"}) == {name: HIDDEN}


def test_a_secret_of_the_job_is_hidden_also_in_other_variables() -> None:
    """A job file may say `env: {RUN: "<% $secrets.name %>-7"}`."""
    env = {"HOLDFAST_SECRET_name": "hunter2", "RUN": "hunter2-7", "HOME": "/root", "HOLDFAST_SECRET_empty": ""}
    assert kept(env) == {
        "HOLDFAST_SECRET_name": HIDDEN,
        "RUN": HIDDEN,
        "HOME": "/root",
        "HOLDFAST_SECRET_empty": HIDDEN,
    }


def test_the_working_directory_is_no_password() -> None:
    assert kept({"PWD": "/data", "OLDPWD": "/"}) == {"PWD": "/data", "OLDPWD": "/"}


@given(VARIABLES)
def test_nothing_that_the_masks_would_hide_is_kept(env: dict[str, str]) -> None:
    for name, value in kept(env).items():
        assert value == HIDDEN or (mask(value) == value == env[name] and mask(f"{name}={value}") == f"{name}={value}")


def test_what_differs_in_every_two_attempts_is_no_difference() -> None:
    def env(attempt: int, **more: str) -> dict[str, str]:
        own = {"HOLDFAST_ATTEMPT": str(attempt), "MASTER_PORT": str(1000 + attempt)}
        return {**own, "HOLDFAST_LOGS": f"/home/jobs/x/attempt-{attempt}/worker-0", "WORLD_SIZE": "4", **more}

    assert differences(env(1), env(2)) == ()
    assert differences(env(1, A="1"), env(2, WORLD_SIZE="3", B="2")) == (
        Difference(name="A", before="1", now=None),
        Difference(name="B", before=None, now="2"),
        Difference(name="WORLD_SIZE", before="4", now="3"),
    )


def test_only_its_user_reads_the_file(tmp_path: Path) -> None:
    keep_environment({"B": "2", "A": "1", "A_TOKEN": "x"}, tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == {"A": "1", "A_TOKEN": HIDDEN, "B": "2"}
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("env", [{"A": "x" * MOST_BYTES}, {"A": os.fsdecode(b"\xff")}])
def test_an_environment_that_cannot_be_kept_is_left_out(env: dict[str, str], tmp_path: Path) -> None:
    keep_environment(env, tmp_path)
    assert not (tmp_path / FILE).exists()
    keep_environment({"A": "1"}, tmp_path / "none")

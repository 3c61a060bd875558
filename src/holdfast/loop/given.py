"""What comes before a job: the place that its files get, or one message of why it gets none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from holdfast.act.bounded import WITHIN_S, within
from holdfast.errors import BadUsage, HoldfastError
from holdfast.loop.order import Launch
from holdfast.plain import own_lines
from holdfast.record.places import JobPlace, claim


def place_for(launch: Launch, now: float) -> JobPlace:
    """The new job's place. `now`: seconds since the epoch. Raises BadUsage for a `--log-dir` that cannot be used."""
    if launch.log_dir is not None:
        must_answer(launch.log_dir, "--log-dir")
    return claim(launch.home, name=launch.spec.name, now=now, log_dir=launch.log_dir)


def must_answer(place: Path, option: str) -> None:
    """Raises BadUsage where `place` lies on a mount whose server is gone: every log line would wait for it."""
    try:
        within(place.exists)
    except OSError as error:
        if error.errno == errno.ETIMEDOUT:
            raise BadUsage(
                f"{option} {place}: no answer within {WITHIN_S:g} s; a directory of a mount that answers was expected",
                hint=f"timeout 5 stat {place}; grep -w nfs4 /proc/mounts",
            ) from None


def refuse(error: HoldfastError) -> int:
    """Say it on stderr, where no console is open yet; its exit status."""
    os.write(2, "\n".join((*own_lines(str(error), again=""), "")).encode())
    return error.exit_status

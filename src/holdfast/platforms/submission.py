"""A job file that a platform has judged and can take: what `holdfast submit` does with it, and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun


class SubmitOption(Noun, frozen=True):
    """A key of a platform's section that is an option of `holdfast submit` too."""

    #: As in the section: `holdfast-image`.
    key: str
    #: As typed: `--nodes`, `-N`.
    forms: tuple[str, ...]
    #: Empty: a flag that can be switched on and off.
    metavar: str
    help: str
    #: Repeated: each value is a key of the section, `NAME` or `NAME=VALUE`.
    further: bool = False


# fmt: off
#: Options that mean the same on every platform.
SHARED = (
    SubmitOption("nodes", ("--nodes", "--nnodes", "-N"), "N|MIN:MAX", "Nodes that take part.  [1]"),
    SubmitOption("spares", ("--spares",), "N", "Further nodes, kept ready."),
    SubmitOption("gpus", ("--gpus", "--gpus-per-node"), "N", "GPUs of each node."),
    SubmitOption("cpus", ("--cpus", "--cpus-per-task", "-c"), "N", "Cores of each node."),
    SubmitOption("memory", ("--memory", "--mem"), "SIZE", "Memory of each node: 64G."),
)
# fmt: on


class Submitted(Noun, frozen=True, kw_only=True):
    """A job that a platform has taken."""

    job: PlatformJob
    name: str
    #: Lines for a person: what it is called there, and the commands that look at it.
    words: str


class TypedValue(Noun, frozen=True, kw_only=True):
    """A value of a platform's section that was given as an option."""

    value: Any
    option: str


class SubmitRequest(Noun, frozen=True, kw_only=True):
    """What was typed."""

    path: Path
    platform: str | None
    #: Names of the section that were given as options.
    options: Mapping[str, TypedValue]
    #: Further options of `holdfast run`, judged already.
    run_words: tuple[str, ...]
    home: Path


class Submission:
    """A job file, judged as far as this machine can judge it. Nothing has been asked of the platform."""

    notes: tuple[str, ...] = ()
    #: The last line of a dry run.
    unsubmitted = ""

    def text(self) -> str:
        """The script or the objects, for a dry run."""
        raise NotImplementedError

    def judged(self) -> tuple[str, tuple[str, ...]]:
        """The same as the platform's server judges it, and the lines about it. Raises `BadUsage`, HoldfastError."""
        raise NotImplementedError

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        """Hand the job over; `told` gets it as soon as it is known. `now`: seconds since the epoch.

        The status: 0, or with `wait` the job's own. Raises `BadUsage`, HoldfastError.
        """
        raise NotImplementedError

"""The interface of a validated job file that a platform can take, and the options of `holdfast submit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun


class SubmitOption(Noun, frozen=True):
    """A key of a platform's section that is also an option of `holdfast submit`."""

    #: Key in the section: `holdfast-image`.
    key: str
    #: Option names: `--nodes`, `-N`.
    forms: tuple[str, ...]
    #: Name of the value in the help; empty: the option is an on/off flag.
    metavar: str
    help: str
    #: The option may be repeated; each value is a key of the section, `NAME` or `NAME=VALUE`.
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
    """A job that a platform has accepted."""

    job: PlatformJob
    name: str
    #: Lines to print: the job's id on the platform, and the commands that show it.
    words: str


class TypedValue(Noun, frozen=True, kw_only=True):
    """A value of a platform's section that came from an option."""

    value: Any
    option: str


class SubmitRequest(Noun, frozen=True, kw_only=True):
    """The typed command line of `holdfast submit`."""

    path: Path
    platform: str | None
    #: Values from options, by their key in the section.
    options: Mapping[str, TypedValue]
    #: Further options of `holdfast run`, already validated.
    run_words: tuple[str, ...]
    home: Path


class Submission:
    """A job file that this machine has validated. The platform has not been contacted yet."""

    notes: tuple[str, ...] = ()
    #: Last line of a dry run's output.
    unsubmitted = ""

    def text(self) -> str:
        """Return the script or the objects, for a dry run."""
        raise NotImplementedError

    def judged(self) -> tuple[str, tuple[str, ...]]:
        """Have the platform's server validate the job.

        Return its text and messages. Raises `BadUsage`, HoldfastError.
        """
        raise NotImplementedError

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        """Submit the job; `told` is called as soon as the platform has accepted it. `now`: seconds since the epoch.

        Return the exit status: 0, or with `wait` the job's own. Raises `BadUsage`, HoldfastError.
        """
        raise NotImplementedError

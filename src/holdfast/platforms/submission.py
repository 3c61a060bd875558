"""The interface of a validated job file that can be submitted to a platform, and the options of `holdfast submit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.model.job_spec import PlatformJob
from holdfast.model.noun_base import Noun
from holdfast.settings.run_options import RunOptions


class SubmitOption(Noun, frozen=True):
    """A key of a platform's section in the job file that is also an option of `holdfast submit`."""

    #: The key in the platform's section of the job file, such as `holdfast-image`.
    key: str
    #: The option's names, such as `--nodes` and `-N`.
    forms: tuple[str, ...]
    #: Name of the value in the help text; empty if the option is a flag.
    metavar: str
    help: str
    #: Whether the option may be repeated. Then each value sets a key of the section, as `NAME` or `NAME=VALUE`.
    further: bool = False
    #: Whether `submit --help` lists the option. Other options are only listed by `--help-all`.
    often: bool = False


# fmt: off
#: Options that have the same meaning on every platform.
SHARED = (
    SubmitOption("nodes", ("--nodes", "--nnodes", "-N"), "N|MIN:MAX", "Number of nodes.  [1]"),
    SubmitOption("spares", ("--spares",), "N", "Number of further nodes that wait to replace a lost one."),
    SubmitOption("gpus", ("--gpus", "--gpus-per-node"), "N", "GPUs of each node."),
    SubmitOption("cpus", ("--cpus", "--cpus-per-task", "-c"), "N", "Cores of each node."),
    SubmitOption("memory", ("--memory", "--mem"), "SIZE", "Memory of each node: 64G."),
)
# fmt: on


class Submitted(Noun, frozen=True, kw_only=True):
    """A job that a platform has accepted."""

    job: PlatformJob
    name: str
    #: Lines to print: the job's id on the platform, and commands that show the job.
    words: str


class TypedValue(Noun, frozen=True, kw_only=True):
    """A value for a platform's section that the user typed as an option."""

    value: Any
    option: str


class SubmitRequest(Noun, frozen=True, kw_only=True):
    """The typed command line of `holdfast submit`."""

    path: Path
    platform: str | None
    #: Maps a key of the platform's section to the value that the user typed for it.
    options: Mapping[str, TypedValue]
    #: Further command-line options for `holdfast run`, already validated.
    run_words: tuple[str, ...]
    home: Path
    #: The typed options of `holdfast run`, with its script, if the user submits a script; None for a job file.
    run_options: RunOptions | None = None


class Submission:
    """A job file that was validated on this machine. The platform has not been contacted yet."""

    notes: tuple[str, ...] = ()
    #: Last line of the output of a dry run.
    unsubmitted = ""

    def text(self) -> str:
        """Return the batch script (Slurm) or the objects (Kubernetes), which a dry run prints."""
        raise NotImplementedError

    def judged(self) -> tuple[str, tuple[str, ...]]:
        """Ask the platform's server to validate the job.

        Return the script or objects, and the server's messages. Raises `BadUsage` if the server rejects the job, and
        HoldfastError if the server cannot be asked.
        """
        raise NotImplementedError

    def submit(self, told: Callable[[Submitted], None], say: Callable[[str], None], *, now: float, wait: bool) -> int:
        """Submit the job.

        `told` is called as soon as the platform has accepted the job. `say`: prints a message. `now`: seconds since
        the epoch.

        Return 0. With `wait`, wait for the job's end and return its exit status. Raises `BadUsage` if the platform
        rejects the job, and HoldfastError if the platform cannot be reached.
        """
        raise NotImplementedError

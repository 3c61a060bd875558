"""A step that only detects preemption. A job needs it if it has a preemption grace period and its other processes get
no signal.

Slurm signals the *steps* of a job at the start of the grace period, and the batch script only at its end. Workers that
run directly below the batch script would get no time to save. Two solutions were considered:

- to poll the job's record: for a grace period of 30 s at least every 5 s, so 10,000 jobs make 2,000 queries a second
  to a slurmctld that also has to schedule;
- a step of one task that sleeps: an srun and a slurmstepd on this node (about 15 MB together), and no query at all.
  Slurm ends it within 0.1 s of the preemption.

The step was chosen. It is created only if the partition preempts with a grace period.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.children import start
from holdfast.platforms.slurm.slurm_commands import program

if TYPE_CHECKING:
    from holdfast.children import Child
    from holdfast.platforms.slurm.slurm_commands import SlurmCommands
    from holdfast.platforms.slurm.text.allocation import SlurmJobIds
    from holdfast.reactor import DescriptorWatch, News

#: Lowest exit status of srun that means a signal ended the step. A lower status means that the step was never created.
_SIGNALLED = 128


class SignalStep:
    """The step that sleeps until Slurm signals it.

    `there(now)` is called when the step runs, because it can detect a preemption from then on. `heard(now)` is called
    when Slurm has ended the step.
    """

    def __init__(
        self,
        asking: SlurmCommands,
        ids: SlurmJobIds,
        there: Callable[[float], News],
        heard: Callable[[float], News],
        say: Callable[[str], None],
    ) -> None:
        """Start the step that sleeps. `say` reports if srun cannot be started. `there`, `heard`: see the class.

        `asking`: runs Slurm commands. `ids`: ids of the job.
        """
        self._reactor = asking.reactor
        self._there = there
        self._heard = heard
        self._say = say
        self._child: Child | None = None
        self._watch: DescriptorWatch | None = None
        self._begins: DescriptorWatch | None = None
        words = [program("srun", asking.environment), f"--jobid={ids.job}", "--overlap", "--nodes=1", "--ntasks=1"]
        words += [f"--nodelist={ids.node}"] if ids.node else []
        quiet = (
            "--mem=0",
            "--gres=none",
            "--input=none",
            "--error=none",
            "--quiet",
            "--job-name=holdfast-listens",
        )
        told, tells = os.pipe()
        try:
            # Ignore SIGTERM: if it goes to all processes of the batch script, the step must not seem to be ended by
            # Slurm.
            self._child = start(
                (*words, *quiet, "sh", "-c", "echo; exec sleep infinity"),
                output=tells,
                env=asking.environment,
                deaf=(signal.SIGTERM,),
            )
        except OSError as error:
            say(f"no step listens for a preemption: srun cannot be run: {error.strerror}")
            os.close(told)
        else:
            self._watch = self._reactor.watch(self._child.pidfd, self._ended)
            self._begins = self._reactor.watch(told, self._begun)
        finally:
            os.close(tells)

    def close(self) -> None:
        """End the step and its srun."""
        self._release()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._child is not None:
            child, self._child = self._child, None
            child.end()

    def _begun(self, fd: int, now: float) -> News:
        begun = bool(os.read(fd, 1))
        self._release()
        return self._there(now) if begun else None

    def _release(self) -> None:
        if self._begins is not None:
            self._begins.close()
            os.close(self._begins.fd)
            self._begins = None

    def _ended(self, fd: int, now: float) -> News:
        assert self._child is not None and self._watch is not None, "it is watched"
        self._watch.close()
        self._watch = None
        child, self._child = self._child, None
        status = child.reap()
        if status is not None and 0 <= status < _SIGNALLED:
            self._say(f"no step listens for a preemption: srun ended with status {status}")
            return None
        return self._heard(now)

"""Read Slurm's configuration, the job's partition, its QOS and its script once, when the owner starts.

The answers come in any order. A conclusion that needs two answers is drawn after the second one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.platforms.slurm.slurm_commands import CommandOutput, SlurmCommands
from holdfast.platforms.slurm.text.scontrol_records import Config, JobRecord, Partition, Qos, config, partition, qos
from holdfast.platforms.slurm.text.signal_meaning import WarningSignal, warned_by

if TYPE_CHECKING:
    from holdfast.platforms.slurm.text.allocation import SlurmJobIds
    from holdfast.reactor import DueCall, News

#: How long after a job's start accounting usually knows the job, in seconds. If it does not, it is queried again.
ACCOUNTED_S = 10.0
MOST_SACCT = 6
#: How long to retry while slurmctld does not answer, in seconds. The answers are not urgent.
PATIENCE_S = 120.0
_CONFIG = ("scontrol", "show", "config")


class SlurmFacts:
    """Slurm's configuration, a job's partition, and the signal that its user requests before the time limit."""

    def __init__(
        self, asking: SlurmCommands, ids: SlurmJobIds, learned: Callable[[float], News], say: Callable[[str], None]
    ) -> None:
        """Prepare the queries. `begin` sends them.

        `asking`: runs Slurm commands.
        `ids`: ids of the job.
        `learned(now)`: called after each answer.
        `say`: prints a message.
        """
        self._asking = asking
        self._ids = ids
        self._learned = learned
        self._say = say
        self._accounts: DueCall | None = None
        self.config = Config()
        #: Whether `config` was read from Slurm. Until then it contains default values.
        self.configured = False
        self.partition: Partition | None = None
        #: The job's QOS. It is read only if Slurm preempts jobs by QOS.
        self.qos: Qos | None = None
        self._qos_name = ""
        #: The signal that the user requests by `--signal`, which Slurm sends some time before the time limit.
        self.warned: WarningSignal | None = None
        #: Records that can name `--signal` and have not been read yet.
        self._unread = {"configuration", "script"}
        self._sacct_tries = 0

    @property
    def preemptable(self) -> bool:
        """Whether the job's partition, or its QOS if Slurm preempts by QOS, lets other jobs preempt it."""
        found = self._preempting
        return found is not None and found.preempt_mode not in ("", "OFF") and self.config.preempts

    @property
    def grace_s(self) -> float:
        """Grace period at a preemption of the job, in seconds; 0: none."""
        found = self._preempting
        return found.grace_s if found is not None and self.preemptable else 0.0

    @property
    def _preempting(self) -> Partition | Qos | None:
        return self.qos if self.config.preempts_by_qos else self.partition

    @property
    def options_known(self) -> bool:
        """Whether every record that can name `--signal` has been read, or cannot be read."""
        return not self._unread

    def begin(self) -> None:
        self._ask(_CONFIG, self._config)
        self._ask(("scontrol", "write", "batch_script", str(self._ids.job), "-"), self._script)

    def close(self) -> None:
        if self._accounts is not None:
            self._accounts.close()

    def seen(self, record: JobRecord) -> None:
        """Handle the job's new Slurm record: query the partition if it has changed, and read the option `--signal`."""
        if self.partition is None or self.partition.name != record.partition:
            self._ask(("scontrol", "show", "partition", record.partition), self._partition)
        self._qos_name = record.fields.get("QOS", "")
        self._ask_qos()
        if line := record.fields.get("SubmitLine", ""):
            self._unread.discard("accounting")
            self.warned = warned_by(line) or self.warned

    def ask_config(self, then: Callable[[float], News], limit_s: float) -> None:
        """Read the configuration again with a short time limit, because Slurm has not answered the first query."""
        self._asking.ask(_CONFIG, lambda answer, now: self._late(self._config, answer, then, now), limit_s=limit_s)

    def ask_partition(self, name: str, then: Callable[[float], News], limit_s: float) -> None:
        """Read the partition again with a short time limit, because Slurm has not answered the first query."""
        words = ("scontrol", "show", "partition", name)
        self._asking.ask(words, lambda answer, now: self._late(self._partition, answer, then, now), limit_s=limit_s)

    def _late(
        self,
        read: Callable[[CommandOutput, float], News],
        answer: CommandOutput,
        then: Callable[[float], News],
        now: float,
    ) -> News:
        found = read(answer, now) if answer.ok else None
        return [*(found or ()), *(then(now) or ())]

    def _ask(self, words: tuple[str, ...], done: Callable[[CommandOutput, float], News]) -> None:
        self._asking.ask(words, done, patience_s=PATIENCE_S)

    def _config(self, answer: CommandOutput, now: float) -> News:
        first = not self.configured
        self._unread.discard("configuration")
        if not answer.ok:
            self._say(f"Slurm does not tell its configuration: {answer.said}; KillWait is taken for 30 s")
            return self._learned(now)
        self.config, self.configured = config(answer.out), True
        self._ask_qos()
        if first and self.config.accounting:
            # Older versions of slurmctld do not store sbatch's command line in the job's Slurm record, so accounting is
            # queried.
            self._unread.add("accounting")
            self._ask_accounting(now)
        return self._learned(now)

    def _ask_accounting(self, now: float) -> None:
        words = ("sacct", "-X", "-n", "-P", "-o", "SubmitLine", "-j", self._ids.shown)
        self._sacct_tries += 1
        self._accounts = self._asking.reactor.at(now + ACCOUNTED_S, lambda now: self._ask(words, self._submitted))

    def _submitted(self, answer: CommandOutput, now: float) -> News:
        if answer.ok and not answer.out and self._sacct_tries < MOST_SACCT:
            self._ask_accounting(now)
            return None
        self._unread.discard("accounting")
        if answer.ok:
            self.warned = warned_by(answer.out) or self.warned
        return self._learned(now)

    def _script(self, answer: CommandOutput, now: float) -> News:
        self._unread.discard("script")
        if answer.ok:
            self.warned = self.warned or warned_by(answer.out)
        return self._learned(now)

    def _ask_qos(self) -> None:
        name = self._qos_name
        if self.config.preempts_by_qos and name and (self.qos is None or self.qos.name != name):
            words = (
                "sacctmgr",
                "-n",
                "-P",
                "show",
                "qos",
                "where",
                f"name={name}",
                "format=Name,GraceTime,PreemptMode",
            )
            self._ask(words, self._qos)

    def _qos(self, answer: CommandOutput, now: float) -> News:
        if answer.ok:
            self.qos = qos(answer.out, self._qos_name)
        return self._learned(now)

    def _partition(self, answer: CommandOutput, now: float) -> News:
        if answer.ok:
            self.partition = partition(answer.out)
        return self._learned(now)

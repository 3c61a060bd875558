"""The table of settings: each is an option, a variable, and a key in the files at once."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.job_spec import NodePlan
from holdfast.model.noun_base import Noun
from holdfast.settings.value_kinds import Value, ValueKind


class Setting(Noun, frozen=True, kw_only=True):
    """One setting. Its name is the option's; `least` bounds numbers from below, itself included."""

    name: str
    kind: ValueKind
    default: Value = None
    help: str = ""
    metavar: str = ""
    least: float = 0.0
    secret: bool = False
    """Its value is never shown."""
    no_option: bool = False
    """`--no-NAME` turns it off."""
    also: tuple[str, ...] = ()
    """torchrun's variables with the same meaning, the strongest first; holdfast's own wins over them."""

    @property
    def variable(self) -> str:
        return "HOLDFAST_" + self.name.upper().replace("-", "_")

    def set_by(self, env: Mapping[str, str]) -> str | None:
        """The variable of this environment that sets it."""
        return next((name for name in (self.variable, *self.also) if env.get(name)), None)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="name",
        kind=ValueKind.TEXT,
        help="What the job is called; default: the script's name.",
        metavar="NAME",
    ),
    Setting(
        name="report",
        kind=ValueKind.FILE,
        help="Also write report.json to this file.",
        metavar="FILE",
    ),
    Setting(
        name="metrics-file",
        kind=ValueKind.FILE,
        help="Write metrics to this file for Prometheus' node exporter (its textfile collector): holdfast.prom.",
        metavar="FILE",
    ),
    Setting(
        name="on-event",
        kind=ValueKind.TEXT,
        help="Run this command for each event of the job: JSON on its stdin, HOLDFAST_* in its environment.",
        metavar="CMD",
    ),
    Setting(
        name="on-end",
        kind=ValueKind.TEXT,
        help="Run this command when the job has ended: its report on stdin.",
        metavar="CMD",
    ),
    Setting(
        name="notify",
        kind=ValueKind.NAMES,
        secret=True,
        help="Who gets a message about a failed job, a held device, a hang, the last restart: addresses of apprise.",
        metavar="URL,URL",
    ),
    Setting(
        name="summary",
        kind=ValueKind.FILE,
        help="At the end append the report to this file, as Markdown; default: $GITHUB_STEP_SUMMARY.",
        metavar="FILE",
    ),
    Setting(
        name="traces",
        kind=ValueKind.FLAG,
        default=False,
        help="At the end export a trace of the job over OTLP/HTTP; OTEL_* variables say where to.",
    ),
    Setting(
        name="notice-timeout",
        kind=ValueKind.SECONDS,
        default=30.0,
        least=0.1,
        help="Kill each of these commands, and what it has started, after so long.",
        metavar="SECONDS",
    ),
    Setting(
        name="json",
        kind=ValueKind.FLAG,
        default=False,
        help="At the end print the report as JSON on stdout instead of as text on stderr.",
    ),
    Setting(
        name="verbose",
        kind=ValueKind.FLAG,
        default=False,
        help="At the end print the long report: all evidence, and each attempt with its decision.",
    ),
    Setting(
        name="utc",
        kind=ValueKind.FLAG,
        default=False,
        help="Print times in UTC instead of this machine's zone; as a variable or key, by every verb.",
    ),
    Setting(
        name="events",
        kind=ValueKind.FLAG,
        default=False,
        help="Print what happens to the job as JSON lines on stdout, while it runs; all else goes to stderr.",
    ),
    Setting(
        name="termination-log",
        kind=ValueKind.FILE,
        help="Also write runtime.pai.agg.error to this file, which a container's engine reads: /dev/termination-log.",
        metavar="FILE",
    ),
    Setting(
        name="exit-status",
        kind=ValueKind.TEXT,
        default="holdfast",
        help="What the run ends with: `holdfast`'s final code, or the `user`'s own status where the job failed by one.",
        metavar="holdfast|user",
    ),
    Setting(
        name="outer",
        kind=ValueKind.TEXT,
        help="The job ends when this process, or the writer of this FIFO, is gone; `none`: it does not.",
        metavar="PID|FIFO",
    ),
    Setting(
        name="container-status",
        kind=ValueKind.FILE,
        help="Where a container's engine leaves its word on the job's container, for dockerStatus.",
        metavar="FILE",
    ),
    Setting(
        name="max-restarts",
        kind=ValueKind.COUNT,
        default=3,
        help="How often the gang is started again after failures that are charged to the workload; 0 is never.",
        metavar="N",
        also=("PET_MAX_RESTARTS",),
    ),
    Setting(
        name="same-failure",
        kind=ValueKind.TIMES,
        default=2,
        help="So many equal failures in a row end the job where no sign of progress was seen between them; `off`: only "
        "the other limits end it.",
        metavar="N|off",
    ),
    Setting(
        name="grace",
        kind=ValueKind.SECONDS,
        default=30.0,
        help="How long workers have between SIGTERM and SIGKILL.",
        metavar="SECONDS",
        also=("PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
    ),
    Setting(
        name="fetch-timeout",
        kind=ValueKind.SECONDS,
        default=14_400.0,
        help="How long the job's prerequisites may take on a node, before its workers are made ready.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="prepare-timeout",
        kind=ValueKind.SECONDS,
        default=600.0,
        help="How long the workers of an attempt may take to be made ready, on all nodes, before one of them begins.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="time-limit",
        kind=ValueKind.SECONDS,
        help="Stop the job when it has run this long, restarts included.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="hang-timeout",
        kind=ValueKind.SECONDS,
        help="Look for a hang when no rank has printed or progressed for this long; default: off.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="hang-warning",
        kind=ValueKind.SECONDS,
        default=600.0,
        help="Without --hang-timeout: say once, with stacks, that for this long no rank has printed, progressed or "
        "changed its use of CPU; 0: never.",
        metavar="SECONDS",
    ),
    Setting(
        name="bind",
        kind=ValueKind.FLAG,
        default=True,
        help="Give each worker the CPUs, devices and memory that `resources` of the job file ask for; without it "
        "workers share what is there.",
        no_option=True,
    ),
    Setting(
        name="job-comment",
        kind=ValueKind.FLAG,
        default=True,
        help="Under Slurm: write class and reason of an attempt's end behind the job's comment, for sacct.",
        no_option=True,
    ),
    Setting(
        name="log-size",
        kind=ValueKind.LIMIT,
        help="Put a log of a worker or a daemon aside when it has this size (100M), and begin a new one; they grow "
        "without a limit unless given.",
        metavar="SIZE",
    ),
    Setting(
        name="log-kept",
        kind=ValueKind.COUNT,
        default=5,
        help="With --log-size: how many logs that were put aside are kept of each stream.",
        metavar="N",
    ),
    Setting(
        name="log-attempts",
        kind=ValueKind.COUNT,
        help="Keep the logs of this many attempts, the present one among them; default: all.",
        metavar="N",
    ),
    Setting(
        name="disk-limit",
        kind=ValueKind.LIMIT,
        help="Disk cleaner: when more of a disk that the job uses is taken than this (90%, 500G, `5000000 inodes`), "
        "stop the job if it is the biggest user; default: off.",
        metavar="LIMIT",
    ),
    Setting(
        name="checks",
        kind=ValueKind.NAMES,
        help="Pre-checks to run, in this order, instead of the default ones.",
        metavar="A,B",
    ),
    Setting(
        name="no-checks",
        kind=ValueKind.FLAG,
        default=False,
        help="Start without pre-checks.",
    ),
    Setting(
        name="check-timeout",
        kind=ValueKind.SECONDS,
        help="Bound each pre-check, its retries included; default: each check's own limit.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="plugin",
        kind=ValueKind.FILES,
        default=(),
        help="A Python file or an executable with further pre-checks; may be given again.",
        metavar="FILE",
    ),
    Setting(
        name="fault-codes",
        kind=ValueKind.FILE,
        help="Device fault codes and their levels (faultCode.json), instead of the built-in ones.",
        metavar="FILE",
    ),
    Setting(
        name="fault-rules",
        kind=ValueKind.FILE,
        help="Escalation of faults by frequency and duration (faultCustomization.json), instead of the built-in rules.",
        metavar="FILE",
    ),
    Setting(
        name="kernel-log",
        kind=ValueKind.FILE,
        default="/dev/kmsg",
        help="Where the kernel's lines are read: device errors, memory kills; a log daemon's file works too.",
        metavar="FILE",
    ),
    Setting(
        name="fault-socket",
        kind=ValueKind.FILE,
        help="Where faults are reported to the running job as JSON lines; default: faults.sock in its directory.",
        metavar="SOCKET",
    ),
    Setting(
        name="fault-file",
        kind=ValueKind.FILE,
        help="A file that is watched for faults as JSON lines; default: faults.jsonl in the job's directory.",
        metavar="FILE",
    ),
    Setting(
        name="ascend-events",
        kind=ValueKind.FILE,
        help="A file of Ascend device events as JSON lines, watched while the job runs.",
        metavar="FILE",
    ),
    Setting(
        name="reset-command",
        kind=ValueKind.TEXT,
        help="What resets a device: `nvidia-smi --gpu-reset -i {index}`; {index} is its number, {device} its name. "
        "Without one, a device that needs a reset is left out.",
        metavar="COMMAND",
    ),
    Setting(
        name="reset-group",
        kind=ValueKind.COUNT,
        default=1,
        help="So many neighbouring devices can only be reset together.",
        metavar="N",
        least=1,
    ),
    Setting(
        name="exits",
        kind=ValueKind.FILE,
        help="Further rows of the catalogue of exits, looked at before the built-in ones.",
        metavar="FILE",
    ),
    Setting(
        name="preload",
        kind=ValueKind.NAMES,
        help="Modules that the warm process imports before workers are forked from it.",
        metavar="MODULES",
    ),
    Setting(
        name="warm",
        kind=ValueKind.FLAG,
        help="Fork workers from a process that has its imports done already; default: cold.",
        no_option=True,
    ),
    Setting(
        name="pai",
        kind=ValueKind.FLAG,
        help="Give workers OpenPAI's variables, with hosts and ports of their peers; default: where the job asks.",
        no_option=True,
    ),
    Setting(
        name="standby",
        kind=ValueKind.FLAG,
        help="With --warm: keep the next attempt's workers forked and waiting while this one runs.",
        no_option=True,
    ),
    Setting(
        name="warm-timeout",
        kind=ValueKind.SECONDS,
        default=120.0,
        help="How long the warm process may take to import; workers start cold after that.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="tee",
        kind=ValueKind.TEXT,
        default="0",
        help="Streams shown on the terminal even where --redirects names them; written as for --redirects.",
        metavar="STREAMS",
        also=("PET_TEE",),
    ),
    Setting(
        name="redirects",
        kind=ValueKind.TEXT,
        default="0",
        help="Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both, or per local rank, `0:1,1:2`.",
        metavar="STREAMS",
        also=("PET_REDIRECTS",),
    ),
    Setting(
        name="python",
        kind=ValueKind.FILE,
        help="The Python that runs SCRIPT; default: that of the active environment.",
        metavar="PATH",
    ),
    Setting(
        name="stdin",
        kind=ValueKind.TEXT,
        default="0",
        help="The rank that reads holdfast's stdin, or none; the other ranks' is empty.",
        metavar="RANK",
    ),
    Setting(
        name="log-dir",
        kind=ValueKind.FILE,
        help="Where the workers' logs go, instead of the job's directory.",
        metavar="DIRECTORY",
        also=("PET_LOG_DIR",),
    ),
    Setting(
        name="hosts",
        kind=ValueKind.NAMES,
        help="Run on these hosts, HOST or HOST:WORKERS each: ssh starts holdfast there.",
        metavar="A,B",
    ),
    Setting(
        name="hostfile",
        kind=ValueKind.FILE,
        help="As --hosts, from a file: a host a line, `HOST slots=WORKERS` or HOST:WORKERS.",
        metavar="FILE",
    ),
    Setting(
        name="ssh",
        kind=ValueKind.TEXT,
        default="ssh",
        help="With --hosts: the command that reaches a host, with its options: `ssh -p 2222`.",
        metavar="COMMAND",
    ),
    Setting(
        name="spares",
        kind=ValueKind.COUNT,
        default=0,
        help="So many nodes beyond --nnodes are kept ready, to take the place of one that is lost.",
        metavar="N",
    ),
    Setting(
        name="join-timeout",
        kind=ValueKind.SECONDS,
        default=NodePlan().join_s,
        help="With --nnodes: how long the nodes may take to come together; after that the start has failed.",
        metavar="SECONDS",
        least=0.001,
    ),
    Setting(
        name="last-call",
        kind=ValueKind.SECONDS,
        default=NodePlan().last_call_s,
        help="With --nnodes MIN:MAX: once MIN nodes are there, how long further ones are waited for.",
        metavar="SECONDS",
    ),
    Setting(
        name="replace-wait",
        kind=ValueKind.SECONDS,
        default=NodePlan().replace_s,
        help="When too few nodes are left: how long another one is waited for.",
        metavar="SECONDS",
    ),
    Setting(
        name="grow",
        kind=ValueKind.FLAG,
        help="A node that comes later takes part at once: the job saves and starts again with it. "
        "Otherwise at the next restart.",
        no_option=True,
    ),
    Setting(
        name="requeue-at-limit",
        kind=ValueKind.FLAG,
        help="At Slurm's time limit the job saves, and Slurm starts it again. Otherwise the limit ends it.",
        no_option=True,
    ),
    Setting(
        name="job-key",
        kind=ValueKind.FILE,
        help="The file with the secret that all nodes of a job share; default: `key` in the state directory.",
        metavar="FILE",
    ),
    Setting(
        name="owner-wait",
        kind=ValueKind.SECONDS,
        default=60.0,
        help="When the node of the owner is lost: how long the others wait for it before they end. Also how long an "
        "owner of several nodes waits for a journal that cannot be written before it begins an attempt.",
        metavar="SECONDS",
    ),
    Setting(
        name="port-range",
        kind=ValueKind.TEXT,
        help="MASTER_PORT and the ports of checks between nodes are chosen from these, for a firewall.",
        metavar="A-B",
    ),
    Setting(
        name="keep-jobs",
        kind=ValueKind.COUNT,
        default=1000,
        help="After a run, once a day, older jobs than these go (holdfast prune); 0: none for their number.",
        metavar="N",
    ),
    Setting(
        name="keep-days",
        kind=ValueKind.COUNT,
        default=180,
        help="The same for jobs that ended longer ago; 0: none for their age.",
        metavar="N",
    ),
    Setting(
        name="keep-size",
        kind=ValueKind.LIMIT,
        default="100G",
        help="The same for the oldest jobs while all together take more of the disk.",
        metavar="SIZE",
    ),
)
"""In the order of `holdfast config`. Adding a row adds the option, the variable and the key in the files."""

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

SECTIONS: dict[str, str] = {
    "slurm": "Unless a job file says it: what `holdfast submit` asks of Slurm.",
    "kubernetes": "Unless a job file says it: what `holdfast submit` asks of Kubernetes.",
}
"""Keys of the files that hold a section of their own (`holdfast.settings.yaml_sections`), and what it is for."""

"""The table of settings. Each setting is an option, an environment variable, and a key in the configuration files."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from holdfast.model import amounts
from holdfast.model.job_spec import NodePlan
from holdfast.model.noun_base import Noun
from holdfast.settings.value_kinds import Value, ValueKind


class Scope(enum.Enum):
    """Decides whose value of a setting counts in a job on several machines.

    The reference page prints the enum's values.
    """

    #: Each `holdfast run` that a user types has its own value, and does not send the value.
    RUN = "run"
    #: The owner determines the value once, and sends it to the agent on each node.
    JOB = "job"
    #: Each node determines its own value. If the user types the option, the agents that this command starts get the
    #: typed value.
    NODE = "node"


class Setting(Noun, frozen=True):
    """One setting. `kind` defines its valid values, and `scope` decides whose value counts."""

    #: Name of the option, without the hyphens at its start.
    name: str
    kind: ValueKind
    scope: Scope
    default: Value = None
    metavar: str = ""
    #: Smallest valid value, if the value is a number.
    least: float = 0.0
    #: Whether the value is secret, so that it is never shown.
    secret: bool = False
    #: Whether there is an option `--no-NAME` that turns the setting off.
    no_option: bool = False
    #: torchrun's variables with the same meaning, the strongest first. holdfast's own variable overrides them.
    also: tuple[str, ...] = ()
    help: str = ""

    @property
    def param(self) -> str:
        """Name of the setting's field in `RunOptions`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return "HOLDFAST_" + self.param.upper()

    @property
    def number_shown(self) -> str:
        """The default as it may be typed, if it is a number."""
        if isinstance(self.default, bool) or not isinstance(self.default, int | float):
            return ""
        return amounts.shown(self.default) if self.kind is ValueKind.SECONDS else f"{self.default:g}"

    def set_by(self, env: Mapping[str, str]) -> str | None:
        """Return the variable in this environment that sets the setting. Return None if there is none."""
        return next((name for name in (self.variable, *self.also) if env.get(name)), None)


TEXT, FLAG, COUNT, TIMES = ValueKind.TEXT, ValueKind.FLAG, ValueKind.COUNT, ValueKind.TIMES
SECONDS, SIZE, LIMIT = ValueKind.SECONDS, ValueKind.SIZE, ValueKind.LIMIT
NAMES, FILES, FILE = ValueKind.NAMES, ValueKind.FILES, ValueKind.FILE
RUN, JOB, NODE = Scope.RUN, Scope.JOB, Scope.NODE

#: All settings, in the order of `holdfast config`. Each row defines the option, the variable and the key in the files.
#: Each row needs a field in `RunOptions`.
# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("name", TEXT, JOB, metavar="NAME", help="The job's name; default: the script's."),
    Setting("report", FILE, RUN, metavar="FILE", help="Also write report.json to this file."),
    Setting("metrics-file", FILE, RUN, metavar="FILE", help="Write metrics to this file for Prometheus' node exporter (its textfile collector): holdfast.prom."),
    Setting("on-event", TEXT, RUN, metavar="CMD", help="Run this command for each event of the job: JSON on its stdin, HOLDFAST_* in its environment."),
    Setting("on-end", TEXT, RUN, metavar="CMD", help="Run this command when the job has ended: its report on stdin."),
    Setting("notify", NAMES, RUN, metavar="URL,URL", secret=True, help="Send messages on failures to apprise's URLs."),
    Setting("summary", FILE, RUN, metavar="FILE", help="At the end append the report to this file, as Markdown; default: $GITHUB_STEP_SUMMARY."),
    Setting("traces", FLAG, RUN, default=False, help="At the end export a trace of the job over OTLP/HTTP; OTEL_* variables say where to."),
    Setting("notice-timeout", SECONDS, RUN, default=30.0, metavar="TIME", least=0.1, help="Kill each of these commands, and what it has started, after so long."),
    Setting("json", FLAG, RUN, default=False, help="At the end print the report as JSON on stdout instead of as text on stderr."),
    Setting("verbose", FLAG, NODE, default=False, help="At the end print the long report: all evidence, and each attempt with its decision."),
    Setting("utc", FLAG, NODE, default=False, help="Print times in UTC instead of this machine's zone; as a variable or key, by every verb."),
    Setting("events", FLAG, RUN, default=False, help="Print what happens to the job as JSON lines on stdout, while it runs; all else goes to stderr."),
    Setting("termination-log", FILE, NODE, metavar="FILE", help="Also write runtime.pai.agg.error to this file, which a container's engine reads: /dev/termination-log."),
    Setting("exit-status", TEXT, NODE, default="holdfast", metavar="holdfast|user", help="What the run ends with: `holdfast`'s final code, or the `user`'s own status where the job failed by one."),
    Setting("outer", TEXT, RUN, metavar="PID|FIFO", help="The job ends when this process, or the writer of this FIFO, is gone; `none`: it does not."),
    Setting("container-status", FILE, NODE, metavar="FILE", help="Where a container's engine leaves its word on the job's container, for dockerStatus."),
    Setting("max-restarts", COUNT, JOB, default=3, metavar="N", also=("PET_MAX_RESTARTS",), help="Restarts after failures; 0: none."),
    Setting("same-failure", TIMES, JOB, default=2, metavar="N|off", help="So many equal failures in a row end the job where no sign of progress was seen between them; `off`: only the other limits end it."),
    Setting("grace", SECONDS, JOB, default=30.0, metavar="TIME", also=("PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"), help="How long workers have between SIGTERM and SIGKILL."),
    Setting("leftover-wait", SECONDS, JOB, default=10.0, metavar="TIME", help="How long processes that a rank has left running (an upload, a tee) may go on after its end, before they get SIGTERM; 0: not at all."),
    Setting("fetch-timeout", SECONDS, JOB, default=14_400.0, metavar="TIME", least=0.001, help="How long the job's prerequisites may take on a node, before its workers are made ready."),
    Setting("prepare-timeout", SECONDS, JOB, default=600.0, metavar="TIME", least=0.001, help="How long the workers of an attempt may take to be made ready, on all nodes, before one of them begins."),
    Setting("time-limit", SECONDS, JOB, metavar="TIME", least=0.001, help="Stop the job after this long, with its restarts."),
    Setting("hang-timeout", SECONDS, JOB, metavar="TIME", least=0.001, help="This long without output or progress is a hang."),
    Setting("hang-warning", SECONDS, JOB, default=600.0, metavar="TIME", help="Without --hang-timeout: say once, with stacks, that for this long no rank has printed, progressed or changed its use of CPU; 0: never."),
    Setting("bind", FLAG, JOB, default=True, no_option=True, help="Give each worker the CPUs, devices and memory that `resources` of the job file ask for; without it workers share what is there."),
    Setting("job-comment", FLAG, JOB, default=True, no_option=True, help="Under Slurm: write class and reason of an attempt's end behind the job's comment, for sacct."),
    Setting("log-size", SIZE, JOB, metavar="SIZE", help="Put a log of a worker or a daemon aside when it has this size (100M), and begin a new one; they grow without a limit unless given."),
    Setting("log-kept", COUNT, JOB, default=5, metavar="N", help="With --log-size: how many logs that were put aside are kept of each stream."),
    Setting("log-attempts", COUNT, JOB, metavar="N", help="Keep the logs of this many attempts, the present one among them; default: all."),
    Setting("disk-limit", LIMIT, JOB, metavar="LIMIT", help="Disk cleaner: when more of a disk that the job uses is taken than this (90%, 500G, `5000000 inodes`), stop the job if it is the biggest user; default: off."),
    Setting("checks", NAMES, JOB, metavar="A,B", help="Pre-checks to run, in this order, instead of the default ones."),
    Setting("no-checks", FLAG, JOB, default=False, help="Start without pre-checks."),
    Setting("check-timeout", SECONDS, JOB, metavar="TIME", least=0.001, help="Bound each pre-check, its retries included; default: each check's own limit."),
    Setting("plugin", FILES, JOB, default=(), metavar="FILE", help="A Python file or an executable with further pre-checks; may be given again."),
    Setting("fault-codes", FILE, JOB, metavar="FILE", help="Device fault codes and their levels (faultCode.json), instead of the built-in ones."),
    Setting("fault-rules", FILE, JOB, metavar="FILE", help="Escalation of faults by frequency and duration (faultCustomization.json), instead of the built-in rules."),
    Setting("kernel-log", FILE, NODE, default="/dev/kmsg", metavar="FILE", help="Where the kernel's lines are read: device errors, memory kills; a log daemon's file works too."),
    Setting("fault-socket", FILE, NODE, metavar="SOCKET", help="Where faults are reported to the running job as JSON lines; default: faults.sock in its directory."),
    Setting("fault-file", FILE, NODE, metavar="FILE", help="A file that is watched for faults as JSON lines; default: faults.jsonl in the job's directory."),
    Setting("ascend-events", FILE, NODE, metavar="FILE", help="A file of Ascend device events as JSON lines, watched while the job runs."),
    Setting("reset-command", TEXT, NODE, metavar="COMMAND", help="What resets a device: `nvidia-smi --gpu-reset -i {index}`; {index} is its number, {device} its name. Without one, a device that needs a reset is left out."),
    Setting("reset-group", COUNT, NODE, default=1, metavar="N", least=1, help="So many neighbouring devices can only be reset together."),
    Setting("exits", FILE, JOB, metavar="FILE", help="Further rows of the catalogue of exits, looked at before the built-in ones."),
    Setting("preload", NAMES, JOB, metavar="MODULES", help="Modules that the warm process imports before workers are forked from it."),
    Setting("warm", FLAG, JOB, no_option=True, help="Restart faster: fork from a warm process."),
    Setting("pai", FLAG, JOB, no_option=True, help="Give workers OpenPAI's variables, with hosts and ports of their peers; default: where the job asks."),
    Setting("standby", FLAG, JOB, no_option=True, help="With --warm: keep the next attempt's workers forked and waiting while this one runs."),
    Setting("warm-timeout", SECONDS, JOB, default=120.0, metavar="TIME", least=0.001, help="How long the warm process may take to import; workers start cold after that."),
    Setting("tee", TEXT, NODE, default="0", metavar="STREAMS", also=("PET_TEE",), help="Streams shown on the terminal even where --redirects names them; written as for --redirects."),
    Setting("redirects", TEXT, NODE, default="0", metavar="STREAMS", also=("PET_REDIRECTS",), help="Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both, or per local rank, `0:1,1:2`."),
    Setting("fold", FLAG, JOB, default=True, no_option=True, help="Print a traceback that several ranks have, or a connection lost after a rank's exit, as one line; of progress bars one state a second. The logs have every byte."),
    Setting("python", FILE, NODE, metavar="PATH", help="Python for SCRIPT; default: the environment's."),
    Setting("image-runtime", TEXT, NODE, default="none", metavar="NAME", help="What runs the image of a job file's workers: apptainer, singularity, enroot, auto (the first that is there) or none."),
    Setting("accelerate-config", FILE, RUN, metavar="FILE", also=("ACCELERATE_CONFIG_FILE",), help="accelerate's configuration file: the number of workers and machines, and the variables of its settings."),
    Setting("stdin", TEXT, RUN, default="0", metavar="RANK", help="The rank that reads holdfast's stdin, or none; the other ranks' is empty."),
    Setting("log-dir", FILE, NODE, metavar="DIRECTORY", also=("PET_LOG_DIR",), help="Write the workers' logs to this directory."),
    Setting("hosts", NAMES, RUN, metavar="A,B", help="Start over ssh on these: HOST or HOST:WORKERS."),
    Setting("hostfile", FILE, RUN, metavar="FILE", help="As --hosts, from a file: a host a line, `HOST slots=WORKERS` or HOST:WORKERS."),
    Setting("ssh", TEXT, RUN, default="ssh", metavar="COMMAND", help="With --hosts: the command that reaches a host, with its options: `ssh -p 2222`."),
    Setting("spares", COUNT, JOB, default=0, metavar="N", help="So many nodes beyond --nnodes are kept ready, to take the place of one that is lost."),
    Setting("join-timeout", SECONDS, JOB, default=NodePlan().join_s, metavar="TIME", least=0.001, help="With --nnodes: how long the nodes may take to come together; after that the start has failed."),
    Setting("last-call", SECONDS, JOB, default=NodePlan().last_call_s, metavar="TIME", help="With --nnodes MIN:MAX: once MIN nodes are there, how long further ones are waited for."),
    Setting("replace-wait", SECONDS, JOB, default=NodePlan().replace_s, metavar="TIME", help="When too few nodes are left: how long another one is waited for."),
    Setting("grow", FLAG, JOB, no_option=True, help="A node that comes later takes part at once: the job saves and starts again with it. Otherwise at the next restart."),
    Setting("requeue-at-limit", FLAG, JOB, no_option=True, help="At Slurm's time limit the job saves, and Slurm starts it again. Otherwise the limit ends it."),
    Setting("job-key", FILE, RUN, metavar="FILE", help="The file with the secret that all nodes of a job share; default: `key` in the state directory."),
    Setting("owner-wait", SECONDS, JOB, default=60.0, metavar="TIME", help="When the node of the owner is lost: how long the others wait for it before they end. Also how long an owner of several nodes waits for a journal that cannot be written before it begins an attempt."),
    Setting("port-range", TEXT, JOB, metavar="A-B", help="MASTER_PORT and the ports of checks between nodes are chosen from these, for a firewall."),
    Setting("keep-jobs", COUNT, RUN, default=1000, metavar="N", help="After a run, once a day, older jobs than these go (holdfast prune); 0: none for their number."),
    Setting("keep-days", COUNT, RUN, default=180, metavar="N", help="The same for jobs that ended longer ago; 0: none for their age."),
    Setting("keep-size", SIZE, RUN, default="100G", metavar="SIZE", help="The same for the oldest jobs while all together take more of the disk."),
)
# fmt: on

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

#: Keys of configuration files that contain a section (`holdfast.settings.yaml_sections`), with the section's purpose.
SECTIONS: dict[str, str] = {
    "slurm": "Unless a job file says it: what `holdfast submit` asks of Slurm.",
    "kubernetes": "Unless a job file says it: what `holdfast submit` asks of Kubernetes.",
}
#: Sections whose values may be nested mappings and lists.
DEEP_SECTIONS = frozenset({"kubernetes"})

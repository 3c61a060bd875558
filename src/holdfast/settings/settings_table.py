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
    Setting("traces", FLAG, RUN, default=False, help="At the end export a trace of the job over OTLP/HTTP, to the address in the OTEL_* variables."),
    Setting("notice-timeout", SECONDS, RUN, default=30.0, metavar="TIME", least=0.1, help="Kill each notice command, with the processes that it has started, after this time."),
    Setting("json", FLAG, RUN, default=False, help="At the end print the report as JSON on stdout instead of as text on stderr."),
    Setting("verbose", FLAG, NODE, default=False, help="At the end print the long report: all evidence, and each attempt with its decision."),
    Setting("utc", FLAG, NODE, default=False, help="Print times in UTC instead of this machine's zone. HOLDFAST_UTC and the key `utc` apply to every verb."),
    Setting("events", FLAG, RUN, default=False, help="Print the job's events as JSON lines on stdout while it runs; all other output goes to stderr."),
    Setting("termination-log", FILE, NODE, metavar="FILE", help="Also write runtime.pai.agg.error to this file, which a container engine reads: /dev/termination-log."),
    Setting("exit-status", TEXT, NODE, default="holdfast", metavar="holdfast|user", help="The exit status of the run: `holdfast` for the final code, `user` for the status of the user's program if this made the job fail."),
    Setting("outer", TEXT, RUN, metavar="PID|FIFO", help="End the job when this process, or the writer of this FIFO, has ended; `none`: never."),
    Setting("container-status", FILE, NODE, metavar="FILE", help="The file in which a container engine reports the status of the job's container, for dockerStatus."),
    Setting("max-restarts", COUNT, JOB, default=3, metavar="N", also=("PET_MAX_RESTARTS",), help="Restarts after failures; 0: none."),
    Setting("same-failure", TIMES, JOB, default=2, metavar="N|off", help="End the job after this many equal failures in a row without progress between them; `off`: only the other limits apply."),
    Setting("grace", SECONDS, JOB, default=30.0, metavar="TIME", also=("PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"), help="How long workers have between SIGTERM and SIGKILL."),
    Setting("leftover-wait", SECONDS, JOB, default=10.0, metavar="TIME", help="How long processes that a rank has started (an upload, a tee) may run after the rank's end, before they get SIGTERM; 0: they get it at once."),
    Setting("fetch-timeout", SECONDS, JOB, default=14_400.0, metavar="TIME", least=0.001, help="Time limit for fetching the job's prerequisites on a node, before its workers are prepared."),
    Setting("prepare-timeout", SECONDS, JOB, default=600.0, metavar="TIME", least=0.001, help="Time limit for preparing the workers of an attempt on all nodes, before the first worker starts."),
    Setting("time-limit", SECONDS, JOB, metavar="TIME", least=0.001, help="Stop the job after this time, restarts included."),
    Setting("hang-timeout", SECONDS, JOB, metavar="TIME", least=0.001, help="Time without output or progress that is a hang."),
    Setting("hang-warning", SECONDS, JOB, default=600.0, metavar="TIME", help="Without --hang-timeout: warn once, with stacks, if for this time no rank has printed, progressed or changed its use of CPU; 0: never."),
    Setting("bind", FLAG, JOB, default=True, no_option=True, help="Give each worker its own CPUs, devices and memory, as `resources` in the job file requests. Otherwise workers share the machine's."),
    Setting("job-comment", FLAG, JOB, default=True, no_option=True, help="Under Slurm: append the class and reason of an attempt's end to the job's comment, for sacct."),
    Setting("log-size", SIZE, JOB, metavar="SIZE", help="Rotate the log of a worker or daemon when it reaches this size (100M); default: logs grow without a limit."),
    Setting("log-kept", COUNT, JOB, default=5, metavar="N", help="With --log-size: how many rotated logs of each stream are kept."),
    Setting("log-attempts", COUNT, JOB, metavar="N", help="Keep the logs of this many attempts, including the present one; default: all."),
    Setting("disk-limit", LIMIT, JOB, metavar="LIMIT", help="Stop the job if a disk is fuller than this (90%, 500G, `5000000 inodes`) and the job is the disk's biggest user; default: off."),
    Setting("checks", NAMES, JOB, metavar="A,B", help="Pre-checks to run, in this order, instead of the default ones."),
    Setting("no-checks", FLAG, JOB, default=False, help="Start without pre-checks."),
    Setting("check-timeout", SECONDS, JOB, metavar="TIME", least=0.001, help="Time limit of each pre-check, including its retries; default: the check's own limit."),
    Setting("plugin", FILES, JOB, default=(), metavar="FILE", help="A Python file or an executable with further pre-checks; may be repeated."),
    Setting("fault-codes", FILE, JOB, metavar="FILE", help="Device fault codes and their levels (faultCode.json), instead of the built-in ones."),
    Setting("fault-rules", FILE, JOB, metavar="FILE", help="Rules that escalate faults by frequency and duration (faultCustomization.json), instead of the built-in rules."),
    Setting("kernel-log", FILE, NODE, default="/dev/kmsg", metavar="FILE", help="The file with the kernel's messages about device errors and OOM kills; a log daemon's file works too."),
    Setting("fault-socket", FILE, NODE, metavar="SOCKET", help="The socket on which the running job receives faults as JSON lines; default: faults.sock in the job's directory."),
    Setting("fault-file", FILE, NODE, metavar="FILE", help="The file from which the running job reads faults as JSON lines; default: faults.jsonl in the job's directory."),
    Setting("ascend-events", FILE, NODE, metavar="FILE", help="A file from which the running job reads Ascend device events as JSON lines."),
    Setting("reset-command", TEXT, NODE, metavar="COMMAND", help="The command that resets a device: `nvidia-smi --gpu-reset -i {index}`; {index} is its number, {device} its name. Without a command, a device that needs a reset is excluded."),
    Setting("reset-group", COUNT, NODE, default=1, metavar="N", least=1, help="Number of neighbouring devices that can only be reset together."),
    Setting("exits", FILE, JOB, metavar="FILE", help="A file with rows for the catalogue of exits, which take precedence over the built-in rows."),
    Setting("preload", NAMES, JOB, metavar="MODULES", help="Modules that the warm process imports before workers are forked from it."),
    Setting("warm", FLAG, JOB, no_option=True, help="Restart faster: fork from a preloaded process."),
    Setting("pai", FLAG, JOB, no_option=True, help="Give workers OpenPAI's variables, with the hosts and ports of their peers; default: only if the job uses them."),
    Setting("standby", FLAG, JOB, no_option=True, help="With --warm: fork the next attempt's workers while the present attempt runs, and let them wait."),
    Setting("warm-timeout", SECONDS, JOB, default=120.0, metavar="TIME", least=0.001, help="Time limit of the warm process for its imports; after that workers start cold."),
    Setting("tee", TEXT, NODE, default="0", metavar="STREAMS", also=("PET_TEE",), help="Streams that go to the terminal even if --redirects names them; same form as for --redirects."),
    Setting("redirects", TEXT, NODE, default="0", metavar="STREAMS", also=("PET_REDIRECTS",), help="Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both, or per local rank, `0:1,1:2`."),
    Setting("fold", FLAG, JOB, default=True, no_option=True, help="Print the same traceback of several ranks, or connection errors after a rank's exit, as one line, and progress bars once a second. The logs have every byte."),
    Setting("python", FILE, NODE, metavar="PATH", help="Python for SCRIPT; default: the active one."),
    Setting("image-runtime", TEXT, NODE, default="none", metavar="NAME", help="The program that runs the workers' image: apptainer, singularity, enroot, auto (the first that is installed) or none."),
    Setting("accelerate-config", FILE, RUN, metavar="FILE", also=("ACCELERATE_CONFIG_FILE",), help="accelerate's configuration file, for the number of workers and machines and for accelerate's variables."),
    Setting("stdin", TEXT, RUN, default="0", metavar="RANK", help="The rank that reads holdfast's stdin, or none; the other ranks have an empty stdin."),
    Setting("log-dir", FILE, NODE, metavar="DIRECTORY", also=("PET_LOG_DIR",), help="Write the workers' logs to this directory."),
    Setting("hosts", NAMES, RUN, metavar="A,B", help="Hosts to start over ssh: HOST or HOST:WORKERS."),
    Setting("hostfile", FILE, RUN, metavar="FILE", help="As --hosts, from a file with one host per line: `HOST slots=WORKERS` or HOST:WORKERS."),
    Setting("ssh", TEXT, RUN, default="ssh", metavar="COMMAND", help="With --hosts: the ssh command with its options, such as `ssh -p 2222`."),
    Setting("spares", COUNT, JOB, default=0, metavar="N", help="Number of nodes beyond --nnodes that wait to replace a lost node."),
    Setting("join-timeout", SECONDS, JOB, default=NodePlan().join_s, metavar="TIME", least=0.001, help="With --nnodes: how long to wait for all nodes; after that the start has failed."),
    Setting("last-call", SECONDS, JOB, default=NodePlan().last_call_s, metavar="TIME", help="With --nnodes MIN:MAX: how long to wait for further nodes once MIN nodes have joined."),
    Setting("replace-wait", SECONDS, JOB, default=NodePlan().replace_s, metavar="TIME", help="How long to wait for another node when too few nodes are left."),
    Setting("grow", FLAG, JOB, no_option=True, help="When a further node joins, save and restart the job with it at once. Otherwise the node takes part from the next restart on."),
    Setting("requeue-at-limit", FLAG, JOB, no_option=True, help="At Slurm's time limit save the job and let Slurm restart it. Otherwise the limit ends the job."),
    Setting("job-key", FILE, RUN, metavar="FILE", help="The file with the secret that all nodes of a job share; default: `key` in the state directory."),
    Setting("owner-wait", SECONDS, JOB, default=60.0, metavar="TIME", help="How long the other nodes wait for a lost owner before they end. Also how long an owner of several nodes waits, before an attempt, for a journal that cannot be written."),
    Setting("port-range", TEXT, JOB, metavar="A-B", help="Choose MASTER_PORT and the ports of checks between nodes from this range, for a firewall."),
    Setting("keep-jobs", COUNT, RUN, default=1000, metavar="N", help="Keep the newest N jobs. Older jobs are removed after a run, once a day (as by holdfast prune); 0: no limit."),
    Setting("keep-days", COUNT, RUN, default=180, metavar="N", help="Keep jobs that ended in the last N days. Others are removed after a run, once a day; 0: no limit."),
    Setting("keep-size", SIZE, RUN, default="100G", metavar="SIZE", help="Keep at most this size of jobs. The oldest are removed after a run, once a day."),
)
# fmt: on

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

#: Keys of configuration files that contain a section (`holdfast.settings.yaml_sections`), with the section's purpose.
SECTIONS: dict[str, str] = {
    "local": "Defaults for the `local:` section of job files, for `holdfast submit`.",
    "slurm": "Defaults for the `slurm:` section of job files, for `holdfast submit`.",
    "kubernetes": "Defaults for the `kubernetes:` section of job files, for `holdfast submit`.",
}
#: Sections whose values may be nested mappings and lists.
DEEP_SECTIONS = frozenset({"kubernetes"})

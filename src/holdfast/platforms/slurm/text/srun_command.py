"""Build the srun command that starts the agents, and parse srun's messages. This module runs no command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.hostlist import hosts_in
from holdfast.safe_text import one_line

_NAMES = """
ACCOUNT ACCTG_FREQ BCAST BCAST_EXCLUDE BURST_BUFFER CLUSTERS COMPRESS CONSTRAINT CONTAINER CORE_SPEC CPU_BIND
CPU_BIND_LIST CPU_BIND_TYPE CPU_BIND_VERBOSE CPU_FREQ_REQ CPUS_PER_GPU CPUS_PER_TASK DEBUG DEBUG_FLAGS
DELAY_BOOT DEPENDENCY DISABLE_STATUS DISTRIBUTION DIST_PLANESIZE EPILOG EXACT EXCLUSIVE EXIT_ERROR
EXIT_IMMEDIATE EXPORT_ENV GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GPU_BIND GPU_FREQ GRES GRES_FLAGS
HINT IMMEDIATE KILL_BAD_EXIT LABELIO MEM_BIND MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE MPI_TYPE MULTI_PROG NETWORK
NO_KILL NPROCS NTASKS NTASKS_PER_CORE NTASKS_PER_GPU NTASKS_PER_NODE NTASKS_PER_SOCKET NTASKS_PER_TRES
OPEN_MODE OVERCOMMIT OVERLAP PARTITION POWER PROFILE PROLOG QOS REMOTE_CWD REQ_SWITCH RESERVATION RESV_PORTS
SEND_LIBS SIGNAL SPREAD_JOB SRUN_REDUCE_TASK_EXIT_MSG STDERRMODE STDINMODE STDOUTMODE STEP_GRES
STEP_KILLED_MSG_NODE_ID TASK_EPILOG TASK_PROLOG TEST_EXEC THREADS THREADS_PER_CORE THREAD_SPEC TIMELIMIT
TRES_BIND TRES_PER_TASK UNBUFFEREDIO USE_MIN_NODES WAIT WAIT4SWITCH WAIT_FOR_CHILDREN WCKEY WORKING_DIR
"""
#: Variables that srun reads as options. They contain the user's options for sbatch, which must not apply to the agents'
#: step.
_OPTIONS_OF_SRUN = frozenset(f"SLURM_{name}" for name in _NAMES.split())
_OF_THE_COMMAND = frozenset(
    f"HOLDFAST_{name}" for name in ("JOB_KEY", "HOSTS", "HOSTFILE", "SSH", "REPORT", "JSON", "STDIN", "NAME")
)


def is_for_srun(name: str) -> bool:
    """Return whether an environment variable would change the agents' step."""
    return name in _OPTIONS_OF_SRUN or name.startswith("SRUN_")


def environment_of_srun(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the srun command. srun passes it to each agent."""
    return {name: value for name, value in env.items() if not is_for_srun(name) and name not in _OF_THE_COMMAND}


def kept_back(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables withheld from srun.

    Workers get them nevertheless, so that an srun in a worker behaves as in the batch script.
    """
    return {name: value for name, value in env.items() if is_for_srun(name)}


def environment_in_step(kept: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's environment: variables that Slurm has set in its task, without srun's options, and `kept`.

    `kept`: the variables that were withheld from srun, see `kept_back`.
    """
    return {name: value for name, value in there.items() if not is_for_srun(name)} | dict(kept)


#: How long Slurm may take to give the step its nodes, in seconds. Without a limit, srun would wait for ever for a
#: removed node.
GET_S = 20


def step_command(job: str, nodes: int, python: str, *, only: tuple[str, ...] = (), gpus: int = 0) -> tuple[str, ...]:
    """Return the srun command of one step, which starts an agent on each of `nodes` nodes.

    `only`: names of the nodes to use. `gpus`: GPUs per node; 0: Slurm's default for a step.
    `python`: path of the Python that runs the agents.
    """
    nodelist = (f"--nodelist={','.join(only)}",) if only else ()
    gpus_per_node = (f"--gpus-per-node={gpus}",) if gpus else ()
    return (
        "srun",
        f"--jobid={job}",
        "--job-name=holdfast",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        *nodelist,
        *gpus_per_node,
        # Share the nodes with the user's own steps, and use all of the job's memory and cores.
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        # The agents handle failures: a lost node, or the exit of a task, must not end the other agents.
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        f"--immediate={GET_S}",
        "--export=ALL",
        "--input=all",
        "--quiet",
        python,
        "-P",
        "-m",
        "holdfast",
        "agent",
    )


class SrunLine(Noun, frozen=True, kw_only=True):
    """A message from srun about the nodes `nodes`, or about its tasks on them."""

    nodes: tuple[str, ...]
    #: Whether a signal killed the agents on the nodes, so that new agents can be started.
    killed: bool = False
    #: Whether Slurm has removed the nodes from the job.
    lost: bool = False
    #: The event in srun's words: `Killed`, `Exited with exit code 2`, `Node failure`.
    words: str


_TASKS = re.compile(r"srun: error: (?P<nodes>\S+): tasks? [\d,-]+: (?P<words>.{1,200})")
_NODE = re.compile(r"srun: error: Node failure on (?P<nodes>\S+)")
_NOISE = re.compile(
    r"srun: cluster configuration lacks support for cpu binding"
    r"|srun: launch/slurm: |srun: First task exited|srun: Force Terminated|srun: Terminating (?:job|Step)"
)


def meaning(line: str) -> SrunLine | None:
    """Parse a message from srun about nodes. Return None for any other message."""
    try:
        if found := _NODE.match(line):
            return SrunLine(nodes=hosts_in(found["nodes"]), lost=True, words="Node failure")
        if found := _TASKS.match(line):
            words = found["words"].strip()
            return SrunLine(nodes=hosts_in(found["nodes"]), killed=not words.startswith("Exited with"), words=words)
    except ValueError:
        pass  # the line only looks like srun's, but comes from a worker
    return None


_OF_STEPD = re.compile(r"slurmstepd-(?P<node>\S+): error: (?P<words>.{1,300})")


def word_of_stepd(line: str) -> tuple[str, str] | None:
    """Parse a message from slurmstepd to node and text: `n3`, `execve(): /venv/bin/python: No such file …`."""
    found = _OF_STEPD.match(line)
    return (found["node"], found["words"].strip()) if found else None


def is_noise(line: str) -> bool:
    """Whether a message from srun is useless to the user."""
    return bool(_NOISE.match(line))


_BUSY = f"Slurm has not given the agents' step its nodes within {GET_S} s"
_NO_SUCH = "Slurm has no such step for the nodes of this job"
_CONTROLLER = "Slurm's controller does not answer"
ENDS = "the job has ended, or Slurm is ending it"
_FINAL = (
    (
        (
            "step creation still disabled|[Jj]ob/step already completing|Job has ended|Invalid job id"
            "|[Ee]xpired job|Slurm job [0-9]+ has expired|Job is (?:no longer|not) running"
        ),
        ENDS,
        "scontrol show job {job}",
    ),
    (
        (
            "Requested node configuration is not available|Requested nodes? (?:are|is) not"
            "|Invalid node name|More (?:processors|nodes) requested|Node count specification invalid"
            "|Memory required by task"
        ),
        _NO_SUCH,
        "scontrol show job {job}; sinfo -R",
    ),
    (
        "Insufficient GRES available in allocation",
        "the nodes of this job have unequally many GPUs, and a step takes as many on each",
        "sbatch --gpus-per-node=N …",
    ),
    ("Access/permission denied|Invalid user id|not authori[sz]ed", "Slurm does not let this user", "squeue -j {job}"),
)
_PASSING = (
    ("Requested nodes are busy", _BUSY, "scontrol show job {job}; sinfo -N -l"),
    (
        "Munge encode|Munge decode|[Aa]uthenticat|auth_g_|Invalid authentication credential",
        "Slurm's authentication does not work on this machine",
        "munge -n | unmunge; systemctl status munge",
    ),
    (
        (
            "Unable to contact slurm controller|Unable to confirm allocation|Connection (?:refused|timed out)"
            "|Socket timed out|Zero Bytes|connect failure|slurm_persist"
        ),
        _CONTROLLER,
        "scontrol ping",
    ),
    (
        "Task launch for|Communication connection failure|Slurmd could not|slurmd",
        "slurmd on a node did not start the agent",
        "sinfo -N -l; scontrol show job {job}",
    ),
)


class StepFailure(Noun, frozen=True, kw_only=True):
    """Why a step could not start, as a clause, and a command for the user to try."""

    words: str
    hint: str
    #: Whether a retry would fail in the same way.
    final: bool = False
    #: Whether Slurm ends the job. The owner then receives a signal too.
    ending: bool = False
    #: Whether the step did not get its nodes. Slurm may have removed some of them from the job, or they are not ready.
    nodes_unavailable: bool = False
    #: Whether a retry within minutes may succeed, because slurmctld restarts or a backup takes over.
    retry_may_help: bool = False


def failure(lines: Sequence[str], job: str, status: int) -> StepFailure:
    """Explain why a step started no agent. `lines`: the last messages from srun. `status`: srun's exit status."""
    for table in (_FINAL, _PASSING):
        for pattern, words, hint in table:
            if line := next((line for line in lines if re.search(pattern, line)), ""):
                return StepFailure(
                    words=f"{words} (srun: {_said(line)})",
                    hint=hint.format(job=job),
                    final=table is _FINAL,
                    ending=words == ENDS,
                    nodes_unavailable=words in (_BUSY, _NO_SUCH),
                    retry_may_help=words in (_CONTROLLER, _BUSY),
                )
    said = _said(next((line for line in lines if "error:" in line), lines[-1] if lines else ""))
    words = f"srun ended with status {status}" + (f": {said}" if said else " and said nothing")
    return StepFailure(words=words, hint=f"srun --jobid={job} --overlap hostname")


def _said(line: str) -> str:
    return one_line(line).removeprefix("srun: ").removeprefix("error: ")[:300].rstrip(". ")

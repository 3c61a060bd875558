"""Check a node from Slurm's hooks (HealthCheckProgram, Prolog, Epilog), and drain or resume the node accordingly.

slurmd gives HealthCheckProgram only the variables SLURMD_NODENAME and PWD: no PATH, no HOME, no SLURM_CONF. So this
module searches the usual folders for `scontrol`, and takes the configuration file from the running slurmd.
"""

from __future__ import annotations

import enum
import fcntl
import os
import pwd
import shlex
import signal
import stat
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from holdfast.clock import Clock
from holdfast.platforms.node_hooks import CheckBusy, NodeTreatment
from holdfast.platforms.slurm.slurm_commands import CommandOutput, CommandTrouble, SlurmCommands
from holdfast.platforms.slurm.text import scontrol_records
from holdfast.platforms.slurm.text.node_treatment import NODE_CHECKS, SlurmNodeAction, Treatment, is_ours, treat
from holdfast.reactor import Reactor
from holdfast.record.held_devices import make_folder, notes
from holdfast.safe_files import open_file, read_file
from holdfast.safe_text import one_line

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The usual paths of slurm.conf: the system's file, then the copy that slurmd fetched from slurmctld.
CONFIGS = (
    Path("/etc/slurm/slurm.conf"),
    Path("/run/slurm/conf/slurm.conf"),
    Path("/var/spool/slurmd/conf-cache/slurm.conf"),
    Path("/etc/slurm-llnl/slurm.conf"),
    Path("/usr/local/etc/slurm.conf"),
    Path("/opt/slurm/etc/slurm.conf"),
)
#: Time limit for all checks together, in seconds. Slurm kills HealthCheckProgram after 60 s.
ALL_S = 40.0
ASK_S = 5.0
#: How long to retry while slurmctld does not answer, in seconds. After that Slurm's next health check tries again.
PATIENCE_S = 6.0
#: How long a prolog waits for another check of the same node to end, in seconds.
TURN_S = 20.0
_ABOVE = 8
_BYTES = 256 << 10


class CheckCaller(enum.StrEnum):
    """The caller of a check: one of Slurm's hooks, or a person."""

    HEALTH = "HealthCheckProgram"
    PROLOG = "Prolog"
    EPILOG = "Epilog"
    PERSON = "a person"


def use_of(environ: Mapping[str, str]) -> CheckCaller:
    """Return who has started this check: one of Slurm's hooks, or a person."""
    context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    if context.startswith("epilog"):
        return CheckCaller.EPILOG
    if context.startswith("prolog") or ("SLURMD_NODENAME" in environ and "SLURM_JOB_ID" in environ):
        return CheckCaller.PROLOG
    return CheckCaller.HEALTH if "SLURMD_NODENAME" in environ else CheckCaller.PERSON


def furnish(environ: MutableMapping[str, str], conf: str | None) -> str:
    """Set PATH and SLURM_CONF, which slurmd does not pass to its hooks. Return the path of slurm.conf; "" if unknown.

    `conf`: the path from the command line; None: find it.
    """
    environ.setdefault("PATH", PATH)
    found = conf or environ.get("SLURM_CONF") or of_slurmd(os.getppid())
    if not found:
        found = next((str(path) for path in CONFIGS if path.exists()), "")
    if found:
        environ["SLURM_CONF"] = found
    return found


def of_slurmd(pid: int) -> str:
    """Return the path of the slurm.conf that the running slurmd uses, from its option -f or else its SLURM_CONF.

    `pid`: where the search for slurmd among this process's ancestors begins. Return "" if none is found.
    """
    for _ in range(_ABOVE):
        try:
            name, parent = _named(pid)
            if name == "slurmd":
                return _option(_words(f"/proc/{pid}/cmdline")) or _variable(_words(f"/proc/{pid}/environ"))
        except (OSError, ValueError, IndexError):
            return ""  # the process has exited, or it belongs to another user
        if parent <= 1:
            return ""
        pid = parent
    return ""


def _named(pid: int) -> tuple[str, int]:
    text = read_file(f"/proc/{pid}/stat", _BYTES).decode(errors="replace")
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])


def _words(path: str) -> list[str]:
    return read_file(path, _BYTES, cut=True).decode(errors="replace").split("\0")


def _option(words: Sequence[str]) -> str:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "-f":
            return following
        if word.startswith("-f") and not word.startswith("--"):
            return word[2:]
    return ""


def _variable(words: Sequence[str]) -> str:
    return next((word.partition("=")[2] for word in words if word.startswith("SLURM_CONF=")), "")


# ------------------------------------------------------------------------------ allowing one check of a node at a time


@contextmanager
def alone(node: str, *, waits: bool) -> Iterator[None]:
    """Prevent other checks of this node while the context is open.

    `waits`: wait for a running check to end, for up to TURN_S. Otherwise raise `CheckBusy`.
    If the lock file cannot be opened, or if the other check takes longer than TURN_S, this check runs nevertheless.
    """
    try:
        fd = open_file(_own_folder() / f"check-{node.replace('/', '_')[:64]}.lock", os.O_RDWR | os.O_CREAT)
    except OSError:
        yield
        return
    try:
        _take(fd, waits)
        yield
    finally:
        os.close(fd)


def _take(fd: int, waits: bool) -> None:
    """Lock the file, or raise `CheckBusy` if another process has the lock.

    `waits`: wait for the lock instead, for up to TURN_S, then go on without it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        if not waits:
            raise CheckBusy from None
    before = signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, TURN_S)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except TimeoutError:
        pass  # go on without the lock, because a job waits for this check
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _out_of_time(number: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError


def _own_folder() -> Path:
    """Return the path of this user's folder on this node. Only this user can create files in it. Raises OSError."""
    place = Path("/run/holdfast") if os.geteuid() == 0 else Path(f"/tmp/holdfast-{os.geteuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(f"{place} is not this user's directory")
    return place


# ------------------------------------------------------------------------------------ devices that jobs have blocked


def told_by_jobs(node: str, users: Collection[int] | None) -> list[str]:
    """Return one sentence for each device of the node that jobs have blocked because of a fault.

    `users`: count only jobs of these user ids; None: of all users; empty: none. Unless it is empty, root also creates
    the folder in which jobs record such devices.
    """
    if users is not None and not users:
        return []
    if os.geteuid() == 0:
        with suppress(OSError):
            make_folder()
    found = []
    for uid, note in notes(node):
        if users is None or uid in users:
            found += [
                one_line(f"{each.device[:64]} is HELD by jobs of {_user(uid)}: {each.reason[:200]}")
                for each in note.devices
            ]
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


# ------------------------------------------------------------------------------------------ draining and resuming nodes


def after_release(node: str, device: str, environ: MutableMapping[str, str]) -> str:
    """Resume a node that holdfast drained because of this device. Return a sentence about the result, or "".

    This is called when every device of the node is healthy again. A drain for any other reason stays. If this machine
    has no slurm.conf, Slurm is not queried.
    """
    if node.startswith("-") or not furnish(environ, None):
        return ""  # scontrol would take such a name for an option
    with _Slurm(environ) as slurm:
        found = slurm.ask(("scontrol", "show", "node", node))
        record = next((each for each in scontrol_records.nodes(found.out) if each.name == node), None)
        if record is None or not is_ours(record) or f"{device} is HELD" not in record.reason:
            return ""
        treatment = treat(record, (), gives_back=True)
        return _outcome(node, treatment, slurm.ask(treatment.command)).said


def tend(
    node: str, troubles: Sequence[str], *, drains: bool, gives_back: bool, environ: Mapping[str, str] = os.environ
) -> NodeTreatment:
    """Drain or resume the node according to its checks. Return the action, which was done or is only proposed.

    `troubles`: messages of failed checks. `drains`: whether the node may be drained.
    `gives_back`: whether a node that holdfast drained is resumed if it has no trouble.
    The returned value contains Slurm's errors. For a healthy node Slurm is not queried unless a person runs the check,
    because ten thousand nodes may share one slurmctld.
    """
    if not troubles and not gives_back and use_of(environ) is not CheckCaller.PERSON:
        return NodeTreatment(node=node)
    with _Slurm(environ) as slurm:
        found = slurm.ask(("scontrol", "show", "node", node))
        record = next((each for each in scontrol_records.nodes(found.out) if each.name == node), None)
        if record is None:
            return _unknown(node, found, troubles)
        treatment = treat(record, troubles, gives_back=gives_back)
        command = shlex.join(treatment.command)
        if treatment.doing is SlurmNodeAction.NOTHING:
            return NodeTreatment(node=node, said=treatment.said, command=command)
        if treatment.doing is SlurmNodeAction.DRAIN and not drains:
            return NodeTreatment(
                node=node, doing=treatment.doing, said=f"{node} would be drained: {command}", command=command
            )
        answer = slurm.ask(treatment.command)
    return _outcome(node, treatment, answer)


def _outcome(node: str, treatment: Treatment, answer: CommandOutput) -> NodeTreatment:
    command = shlex.join(treatment.command)
    done = {SlurmNodeAction.DRAIN: "drained", SlurmNodeAction.RESUME: "given back to work"}[treatment.doing]
    if answer.ok:
        said = f"{node} is {done}: {treatment.said}"
    else:
        said = f"{node} is not {done}: {answer.said}; an administrator types: {command}"
    return NodeTreatment(node=node, doing=treatment.doing, done=answer.ok, said=said, command=command)


def _unknown(node: str, answer: CommandOutput, troubles: Sequence[str]) -> NodeTreatment:
    if answer.ok or answer.trouble is CommandTrouble.UNKNOWN:
        said = f"Slurm knows no node {node}: SLURMD_NODENAME names the node where its host has another name"
    else:
        said = f"Slurm was not asked about {node}: {answer.said}"
    return NodeTreatment(node=node, doing=SlurmNodeAction.DRAIN if troubles else SlurmNodeAction.NOTHING, said=said)


class _Slurm:
    """Runs Slurm commands one after another, and blocks during each of them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._reactor = Reactor(Clock().now)
        self._asking = SlurmCommands(self._reactor, environ)

    def __enter__(self) -> _Slurm:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()
        self._reactor.close()

    def ask(self, words: Sequence[str]) -> CommandOutput:
        found: list[CommandOutput] = []
        self._asking.ask(words, lambda answer, now: found.append(answer), limit_s=ASK_S, patience_s=PATIENCE_S)
        while not found:
            self._reactor.wait()
        return found[0]


# -------------------------------------------------------------------------------------- the interface `NodeHooks`


class SlurmHooks:
    """The hooks by which Slurm checks its nodes, for `holdfast check`."""

    checks = NODE_CHECKS
    limit_s = ALL_S
    furnish = staticmethod(furnish)
    alone = staticmethod(alone)
    told_by_jobs = staticmethod(told_by_jobs)
    tend = staticmethod(tend)
    after_release = staticmethod(after_release)

    def by_hand(self, environ: Mapping[str, str]) -> bool:
        return use_of(environ) is CheckCaller.PERSON

    def waits(self, environ: Mapping[str, str]) -> bool:
        return use_of(environ) in (CheckCaller.PROLOG, CheckCaller.EPILOG)

"""Build the commands that ssh runs on a host, and explain their exit statuses. This module runs no command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.safe_text import one_line

_SET = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=10",
    "ClearAllForwardings=yes",
    "ControlMaster=no",
    "RemoteCommand=none",
)
#: Options for ssh: no terminal, no forwarding, no prompts, and detection of a broken connection within 30 s. They also
#: override the user's settings for logins (forwarded ports, a command, a shared connection).
OPTIONS = ("-T", "-a", "-x", *(word for each in _SET for word in ("-o", each)))

#: Exit statuses of the command lines in this module. No job uses these values.
NO_DIRECTORY, NO_PYTHON, NO_PATH, NO_HOLDFAST = 97, 98, 96, 99
OF_SSH = 255

_LOOK = f"""cd -- "$1" || exit {NO_DIRECTORY}
[ -x "$2" ] || exit {NO_PYTHON}
python=$2; shift 2
for path; do [ -e "$path" ] || {{ printf '%s\\n' "$path"; exit {NO_PATH}; }}; done
"$python" -P -c 'import holdfast; print(holdfast.__version__)' || exit {NO_HOLDFAST}
"""
_START = f"""cd -- "$1" || exit {NO_DIRECTORY}
[ -x "$2" ] || exit {NO_PYTHON}
exec "$2" -P -m holdfast agent
"""

#: Variables that belong to the machine or login session of the user. They are not sent to other hosts.
_OF_LOGIN = frozenset({
    "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_VTNR",
    "DBUS_SESSION_BUS_ADDRESS", "TMUX", "TMUX_PANE", "STY", "PWD", "OLDPWD", "SHLVL", "_", "MAIL", "TTY",
    "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "HOLDFAST_JOB_KEY",
    "HOLDFAST_HOSTS", "HOLDFAST_HOSTFILE", "HOLDFAST_SSH", "HOLDFAST_REPORT", "HOLDFAST_JSON", "HOLDFAST_STDIN",
})  # fmt: skip
_MACHINES = ("HOST", "SSH_")
#: Variables that a host keeps if it has values for them.
_OF_THE_HOST = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR")


def ssh_words(command: str, where: str) -> tuple[str, ...]:
    """Split `--ssh` into words. `where`: the option or variable, for the message. Raises `BadUsage`."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise BadUsage(f"{where} {command!r}: {error}: expected a command", hint="holdfast run --ssh ssh …") from None
    if not words:
        raise BadUsage(f"{where} {command!r}: expected a command", hint="holdfast run --ssh ssh …")
    return words


def host_check_command(
    ssh: Sequence[str], host: str, directory: str, python: str, paths: Sequence[str]
) -> tuple[str, ...]:
    """Return the command line that checks whether a host can run the job. It prints the host's holdfast version.

    `ssh`: words of the ssh command. `paths`: further paths that must exist on the host.
    """
    return _on(ssh, host, _LOOK, (directory, python, *paths))


def start_command(ssh: Sequence[str], host: str, directory: str, python: str) -> tuple[str, ...]:
    """Return the command line that starts an agent on a host. The agent reads its settings from standard input."""
    return _on(ssh, host, _START, (directory, python))


def _on(ssh: Sequence[str], host: str, script: str, arguments: Sequence[str]) -> tuple[str, ...]:
    # sshd passes one line to the login shell, which runs `sh`. So users of bash, csh and fish get the same result.
    there = shlex.join(("exec", "sh", "-c", " ; ".join(_lines(script)), "holdfast", *arguments))
    return (*ssh, *OPTIONS, "--", host, there)


def _lines(script: str) -> list[str]:
    """Split the script into lines, because csh allows no line end within quotes."""
    return [line for line in script.strip().split("\n") if line]


def environment_for(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to send to other hosts, without those of this machine or login session."""
    return {name: value for name, value in env.items() if name not in _OF_LOGIN and not name.startswith(_MACHINES)}


def environment_there(sent: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an agent's job: the sent variables, with the host's own values where they matter."""
    own = {name: there[name] for name in (*_OF_THE_HOST, "XDG_RUNTIME_DIR") if name in there}
    return {**sent, **own}


class HostLook(Noun, frozen=True, kw_only=True):
    """The result of a check of one host: ssh's exit status and output."""

    host: str
    status: int
    out: str
    err: str


def trouble(look: HostLook, *, directory: str, python: str, version: str, ssh: str) -> tuple[str, str] | None:
    """Explain why no agent can run on a host, by a sentence and a command to try. Return None if an agent can run.

    `look`: the result of the check. `directory`, `python`: paths that the host must have. `version`: the version of
    holdfast that the host must have.
    """
    host, said = look.host, _last_words(look.err)
    try_it = f"{ssh} -o BatchMode=yes {host}"
    match look.status:
        case 0:
            found = look.out.strip().rpartition("\n")[2]
            if found == version:
                return None
            there = f"holdfast {found}" if found else "no version"
            words = f"{host}: {python} has {there} there, and {version} here: expected the same on all hosts"
            return one_line(words), f"{try_it} {shlex.quote(python)} -m pip install holdfast-run=={version}"
        case status if status == NO_DIRECTORY:
            hint = f"{try_it} ls -ld {shlex.quote(directory)}"
            return f"{host}: there is no directory {directory} there, as the job has it here", hint
        case status if status == NO_PYTHON:
            return f"{host}: there is no program {python} there", f"{try_it} ls -l {shlex.quote(python)}"
        case status if status == NO_PATH:
            path = one_line(look.out.strip().rpartition("\n")[2])
            return f"{host}: there is no {path} in {directory} there", f"{try_it} ls -l {shlex.quote(path)}"
        case status if status == NO_HOLDFAST:
            hint = f"{try_it} {shlex.quote(python)} -m pip show holdfast"
            return f"{host}: {python} cannot import holdfast there: {said}", hint
        case status if status == OF_SSH:
            return f"{host}: {_of_ssh(said)}", _to_type(said, ssh, host, try_it)
        case status if status < 0:
            return f"{host}: ssh did not end in time, and was ended: {said}", f"{try_it} true"
        case status:
            return f"{host}: ssh ended with status {status}: {said}", f"{try_it} true"


def _of_ssh(said: str) -> str:
    if "Permission denied" in said:
        return f"ssh may not log in without a password: {said}"
    if "Host key verification failed" in said:
        return f"ssh does not know this host's key yet: {said}"
    return f"ssh cannot reach it: {said}"


def _to_type(said: str, ssh: str, host: str, try_it: str) -> str:
    if "Permission denied" in said:
        return f"ssh-copy-id {host}; then {try_it} true"
    if "Host key verification failed" in said:
        return f"{ssh} {host} true"
    return f"{try_it} true"


def _last_words(text: str) -> str:
    """Return the last line that ssh printed, which contains the reason. Warnings come before it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line(lines[-1])[:300].rstrip(".\r ") if lines else "it said nothing"

"""The program that sshd runs for a login: a shell or a command, in the environment and directory of one worker.

    python ssh_session.py WORKERS         WORKERS: a file of lines `NAME PID`; HOLDFAST_ENTER names one of them

It reads the variables from the worker's process, so that no file contains them. It imports only `os` and `sys`, so that
a login is fast.
"""

from __future__ import annotations

import os
import sys

#: Variables that keep the ssh session's values.
OF_THE_SESSION = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "TERM", "LANG")


def main(workers: str) -> None:
    """Replace this process by the shell or the command that the login requests."""
    session = dict(os.environ)
    wanted, command = session.pop("HOLDFAST_ENTER", ""), session.pop("SSH_ORIGINAL_COMMAND", "")
    env = of_worker(workers, wanted) or session
    env.update({name: session[name] for name in OF_THE_SESSION if name in session})
    shell = env.get("SHELL") or session.get("SHELL") or "/bin/sh"
    if not os.access(shell, os.X_OK):
        shell = "/bin/sh"
    try:
        os.execve(shell, [shell, "-c", command] if command else [shell], env)
    except OSError as error:
        sys.exit(f"holdfast: {shell}: {error.strerror}")


def of_worker(workers: str, wanted: str) -> dict[str, str] | None:
    """Return the environment of the worker `wanted`, and change to its directory. Return None if the worker has
    ended.
    """
    try:
        with open(workers, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes longer than the whole function
            pids = dict(line.split() for line in file.read().splitlines())
    except OSError as error:
        print(f"holdfast: {workers}: {error.strerror}", file=sys.stderr)
        return None
    wanted = wanted or next(iter(pids), "")
    pid = pids.get(wanted, "")
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as environ:  # noqa: PTH123 - as above
            words = environ.read().split(b"\0")
        os.chdir(f"/proc/{pid}/cwd")
    except OSError:
        print(f"holdfast: {wanted} does not run here; this is its node", file=sys.stderr)
        return None
    pairs = (os.fsdecode(word).partition("=") for word in words if word)
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    main(sys.argv[1])

"""Checks a job's notices before the job starts, so that a notice that cannot arrive is reported at once."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import msgspec

from holdfast.model.notice_messages import NoticePlan

#: Time limit for parsing the addresses, in seconds: apprise is large, and a busy machine is slow.
PARSE_LIMIT_S = 30.0
#: Matches the first word of a command if the shell takes it literally and it is no assignment.
_PLAIN_WORD = re.compile(r"[\w./+-]+(?=\s|$)")


class NoticeProblem(msgspec.Struct, frozen=True):
    """A reason why a notice would not arrive, as a sentence, and the command that the user can type."""

    text: str
    hint: str
    #: True if holdfast itself could not send the notice. False if the user's command is probably missing: only the
    #: user's shell can tell.
    certain: bool = True


def notice_problems(plan: NoticePlan, environment: Mapping[str, str]) -> Iterator[NoticeProblem]:
    """Yield the problems of the addresses and commands in `plan`. Nothing is sent, and no command runs.

    `environment`: the variables with which the commands will run.
    """
    if plan.notify:
        if importlib.util.find_spec("apprise") is None:
            text = "--notify: apprise is not installed, so no message can be sent"
            yield NoticeProblem(text, "pip install 'holdfast-run[notify]'")
        elif why := _unparsable(plan.notify):
            yield NoticeProblem(f"--notify: {why}", "holdfast notify --test")
    for option, command in (("--on-event", plan.on_event), ("--on-end", plan.on_end)):
        word = _PLAIN_WORD.match(command.strip())
        if word is not None and not _has_program(word[0], environment):
            text = f"{option}: the shell finds no program {word[0]} on this node"
            yield NoticeProblem(text, f"command -v {word[0]}", certain=False)


def send_test(url: str, host: str, limit_s: float) -> str:
    """Send a test message that names `host` to one address. Return why it was not accepted, or "" if it was."""
    body = "This is a test. A job's notices arrive here."
    try:
        done = _sender((), limit_s, urls=(url,), title=f"holdfast on {host}: test", body=body)
    except (OSError, subprocess.TimeoutExpired):
        return f"no answer within {limit_s:g} s (--notice-timeout)"
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip()


def _unparsable(urls: tuple[str, ...]) -> str:
    """Return which addresses apprise does not know, or "" if it knows all."""
    try:
        done = _sender(("--parse",), PARSE_LIMIT_S, urls=urls, title="", body="")
    except (OSError, subprocess.TimeoutExpired):
        return ""  # report nothing: the check took too long, and a message may still arrive
    return done.stderr.decode(errors="replace").strip().rpartition("\n")[2] if done.returncode == 1 else ""


def _sender(words: tuple[str, ...], limit_s: float, **message: object) -> subprocess.CompletedProcess[bytes]:
    """Run the process that imports apprise. Addresses are secret, so they are passed on stdin."""
    command = [sys.executable, "-P", "-m", "holdfast.notices.send_message", *words]
    given = msgspec.json.encode(message)
    return subprocess.run(command, input=given, capture_output=True, timeout=limit_s, check=False)


def _has_program(word: str, environment: Mapping[str, str]) -> bool:
    """Return whether the shell knows the program. The shell also knows its built-in commands."""
    words = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", word]
    try:
        done = subprocess.run(words, env=dict(environment), capture_output=True, timeout=PARSE_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode == 0

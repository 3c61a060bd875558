"""Finds two mistakes in a command: a worker that starts another launcher, and an option of the launcher after the
script's name. In both cases the command runs, but not as the user meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from holdfast.launch.pipeline_status import commands_of, pipe_warning, shell_text
from holdfast.model.job_spec import JobSpec
from holdfast.settings.other_launchers import (
    FLAGS,
    PYTHON,
    OtherCommand,
    line,
    option_name,
    other_command,
    typed_options,
)

#: Options of holdfast and of torchrun that few scripts have.
_OURS_ONLY = frozenset({
    "--nproc-per-node", "--nnodes", "--node-rank", "--rdzv-endpoint", "--rdzv-backend", "--rdzv-id", "--rdzv-conf",
    "--standalone", "--max-restarts", "--no-python", "--no-checks", "--hang-timeout",
})  # fmt: skip


def behind_the_script(words: Sequence[str], script: Path) -> str:
    """Return a sentence if an option of holdfast comes after a script that does not know this option, else ""."""
    at = next((i for i, word in enumerate(words) if i and option_name(word) in _OURS_ONLY), 0)
    if not at:
        return ""
    name = option_name(words[at])
    try:
        text = script.read_text(errors="replace").replace("-", "_")
    except OSError:
        return ""
    if name[2:].replace("-", "_") in text:
        return ""
    pair = words[at : at + 1 + (name not in (*FLAGS, "--no-checks") and "=" not in words[at])]
    rest = (*words[:at], *words[at + len(pair) :])
    return (
        f"{words[at]} stands behind {words[0]}, so the script gets it, and not holdfast: put it before; try: "
        f"{line((*pair, *rest), typed_options(words))}"
    )


def launchers_in(command: Sequence[str], cwd: Path) -> Iterator[OtherCommand]:
    """Yield the launchers that a worker's command starts. The command may be a launcher itself, or a shell's text that
    contains one."""
    text, _ = shell_text(command, cwd)
    for words in commands_of(text) if text else [list(command)]:
        while words and (re.match(r"\w+=", words[0]) or words[0] in ("env", "exec", "nohup", "time")):
            words = words[1:]
        found = other_command(words)
        if found is None and len(words) > 2 and PYTHON.fullmatch(words[0].rpartition("/")[2]):
            found = other_command([word for word in words[1:] if word != "-u"])
        if found is not None and not found.launcher:
            # Look for a launcher after the interpreter, as in `python /venv/bin/torchrun`.
            found = other_command(found.words)
        if found is not None and found.launcher:
            yield found


def command_warnings(spec: JobSpec, cwd: Path) -> tuple[str, ...]:
    """Return at most two sentences: about the first command that starts another launcher in each of several workers,
    and about the first command in which a pipe hides a worker's failure."""
    workers, nodes = spec.world_size * spec.nodes.most, spec.nodes.most
    several = [role.command for role in spec.roles if role.count * nodes > 1]
    no_python = [role.command for role in spec.roles if not role.command[0].rpartition("/")[2].startswith("python")]
    nested = filter(None, (nested_warning(command, workers, cwd) for command in several))
    pipes = filter(None, (pipe_warning(command, cwd) for command in no_python))
    return (*islice(nested, 1), *islice(pipes, 1))


def nested_warning(command: Sequence[str], workers: int, cwd: Path) -> str:
    """If each of several workers starts a launcher that begins its own training job, return a sentence about it, else
    ""."""
    if workers < 2 or "HOLDFAST_ATTEMPT" in os.environ:
        return ""
    found = next((one for one in launchers_in(command, cwd) if not one.joins), None)
    if found is None:
        return ""
    instead = f"; try: {line(found.words, ())}" if found.words else ""
    return (
        f"each of the {workers} workers starts {found.launcher}, which begins a job of its own: {workers} jobs run "
        f"side by side. holdfast takes the place of {found.launcher}{instead}"
    )

"""Write the batch script of a job: `#SBATCH` lines, and `exec holdfast run` as the last line.

Slurm's signals reach only the batch shell, and a shell does not forward them. `exec` puts holdfast in the shell's
place. Values from the user are quoted, so that bash reads each as one word and sbatch as one value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from holdfast.errors import BadUsage
from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.text.slurm_options import OWN, SlurmOptions

#: Matches characters that sbatch takes literally. In `#SBATCH` lines `#` begins a comment, a backslash escapes, and
#: quotes group.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]^~&|()*-]+")


class SbatchScriptSpec(Noun, frozen=True, kw_only=True):
    """The data for a script. Paths are absolute."""

    name: str
    wanted: SlurmOptions
    spares: int
    #: Path of holdfast's state directory.
    home: str
    #: Path of the job file's copy, from which the job runs.
    job_file: str
    #: Path of the job file that the user named, for a comment in the script.
    source: str
    python: str
    #: Further command-line options for `holdfast run`.
    words: tuple[str, ...] = ()
    version: str = ""

    @property
    def many(self) -> bool:
        return self.wanted.nodes[1] + self.spares > 1


def script(order: SbatchScriptSpec) -> str:
    """Return the text of the batch script. Raises `BadUsage` if Slurm or bash could not expand the `report` pattern."""
    lines = ["#!/bin/bash", *(f"#SBATCH {_directive(option, value)}" for option, value in directives(order)), ""]
    lines.append(f"# Written by holdfast {order.version} from {order.source}.".replace("  ", " "))
    lines += [f"export HOLDFAST_HOME={shlex.quote(order.home)}", *order.wanted.setup]
    # -P prevents the import of a file in the working directory that has the name of a module.
    run = [order.python, "-P", "-m", "holdfast", "run", "--job", order.job_file, *_over(order)]
    words = [shlex.quote(word) for word in run]
    if pattern := order.wanted.text("report"):
        words += ["--report", filled_in(pattern, order)]
    if (wait := order.wanted.text("replace-wait")) is not None:
        words += ["--replace-wait", wait]
    if (at_limit := order.wanted.at_limit) is not None:
        words.append("--requeue-at-limit" if at_limit else "--no-requeue-at-limit")
    words += [shlex.quote(word) for word in order.words]
    return "\n".join([*lines, f"exec {' '.join(words)}", ""])


def directives(order: SbatchScriptSpec) -> Iterator[tuple[str, str | None]]:
    """Yield sbatch's options with their values, in the order of the script. A flag has the value None."""
    wanted = order.wanted
    yield "job-name", order.name
    for own in OWN:
        if own.key == "nodes":
            least, most = wanted.nodes[0], wanted.nodes[1] + order.spares
            least = most if wanted.nodes[0] == wanted.nodes[1] else least
            yield "nodes", f"{least}" if least == most else f"{least}-{most}"
            yield "ntasks-per-node", "1"
        elif own.key == "requeue":
            yield ("requeue" if wanted.requeue else "no-requeue"), None
        elif own.key == "output":
            yield "output", wanted.text("output") or ("slurm-%A_%a.out" if wanted.text("array") else "slurm-%j.out")
            yield "open-mode", "append"
        elif own.sbatch and (text := wanted.text(own.key)) is not None:
            yield own.sbatch, text
    if order.many:
        # --no-kill cannot help a job on one node, which does not survive that node's failure.
        yield "no-kill", None
    yield from wanted.further


def _over(order: SbatchScriptSpec) -> Sequence[str]:
    """Return the options of `holdfast run` for the number of nodes and spares."""
    if not order.many:
        return ()
    least, most = order.wanted.nodes
    # Leave `--nnodes` out for one node with spares, because `--nnodes 1` would mean a job on this machine.
    words = [] if most == 1 else ["--nnodes", f"{least}" if least == most else f"{least}:{most}"]
    return [*words, "--spares", str(order.spares)] if order.spares or order.wanted.spares is not None else words


def _directive(option: str, value: str | None) -> str:
    if value is None:
        return f"--{option}"
    if not _PLAIN.fullmatch(value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"--{option}={value}"


_FILLED = {
    "j": '"$SLURM_JOB_ID"',
    "A": '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"',
    "a": '"$SLURM_ARRAY_TASK_ID"',
}


def filled_in(pattern: str, order: SbatchScriptSpec) -> str:
    """Return a path with `%j`, `%A`, `%a`, `%x` and `%%` replaced by Slurm's variables, as one word of bash."""
    array, origin = order.wanted.text("array"), order.wanted.origins.get("report", "--report")
    names = re.findall(r"%(.?)", pattern)
    if bad := [name for name in names if name not in ("j", "A", "a", "x", "%")]:
        raise BadUsage(
            f"{origin}: `%{bad[0]}` in {pattern}: expected %j, %A, %a, %x or %%",
            hint="holdfast submit --report 'report-%j.json' …",
        )
    if array is None and "a" in names:
        raise BadUsage(
            f"{origin}: `%a` in {pattern} is the index in a job array, and this job is no array: expected %j"
        )
    if array is not None and not {"a", "j"} & set(names):
        raise BadUsage(
            f"{origin}: all jobs of the array {array} would write {pattern}: expected %a or %j in it",
            hint="holdfast submit --report 'report-%A_%a.json' …",
        )
    parts = re.split(r"(%.)", pattern)
    filled = {"%x": shlex.quote(order.name), "%%": "%", **{f"%{name}": word for name, word in _FILLED.items()}}
    return "".join(filled.get(part) or shlex.quote(part) for part in parts if part)

"""Turn the user's Slurm settings into sbatch options.

The settings come from options, from a job file's `slurm:` section and from settings files.

holdfast's own keys have a fixed meaning and are validated here. Any other key becomes the sbatch option of that name,
and sbatch validates it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from holdfast.errors import BadUsage
from holdfast.model import amounts
from holdfast.model.noun_base import Noun

Said = str | bool | tuple[str, ...] | None


class SlurmValue(Noun, frozen=True, kw_only=True):
    """One value with its origin for messages: "--partition", "job file train.yaml: `slurm.partition`"."""

    value: Said
    origin: str
    hint: str = ""


class SlurmKey(Noun, frozen=True, kw_only=True):
    """One of the keys that holdfast itself defines."""

    key: str
    #: Description of the key for the documentation.
    what: str
    expected: str
    #: Regular expression for the value; empty: any text is valid.
    pattern: str = ""
    #: The sbatch option for this key; empty if there is none.
    sbatch: str = ""
    #: Other names for the key.
    also: tuple[str, ...] = ()


_COUNT = r"[1-9][0-9]{0,5}"
_TIME = r"[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|(?i:infinite|unlimited)"
_RANGE = r"[0-9]+(-[0-9]+(:[0-9]+)?)?"

#: All of holdfast's keys, in the order of the documentation and of the script's lines.
# fmt: off
OWN: tuple[SlurmKey, ...] = (
    SlurmKey(key="nodes", what="nodes that take part, or a range MIN:MAX; 1 unless given", expected="a number of nodes, 1 or more, or MIN:MAX", pattern=rf"{_COUNT}([:-]{_COUNT})?", sbatch="nodes"),
    SlurmKey(key="spares", what="further nodes that are kept ready; `--nodes` of sbatch is `nodes` and `spares` together", expected="a number of nodes, 0 or more", pattern=r"[0-9]{1,5}"),
    SlurmKey(key="gpus", what="GPUs of each node (not of the job): `8`, or `a100:4`", expected="a number of GPUs of each node, or TYPE:NUMBER", pattern=rf"([A-Za-z][A-Za-z0-9_.-]*:)?{_COUNT}", sbatch="gpus-per-node", also=("gpus-per-node",)),
    SlurmKey(key="cpus", what="cores of each node", expected="a number of cores of each node", pattern=_COUNT, sbatch="cpus-per-task", also=("cpus-per-task",)),
    SlurmKey(key="memory", what="memory of each node, with its unit: `64G`, `500M`; `0`: all that the node has", expected="a size with its unit, as in 64G, or 0 for all memory of the node", pattern=r"0|[1-9][0-9]*([KMGTkmgt])(i?[Bb])?", sbatch="mem", also=("mem",)),
    SlurmKey(key="partition", what="the partition, or several: `a,b`", expected="a name", sbatch="partition"),
    SlurmKey(key="account", what="the account that pays", expected="a name", sbatch="account"),
    SlurmKey(key="qos", what="the quality of service", expected="a name", sbatch="qos"),
    SlurmKey(key="time", what="the time limit: with units (`2h`, `1d12h`), or as Slurm writes it: minutes, `M:S`, `H:M:S`, `D-H`, `D-H:M:S`", expected="a time such as 2h or 1d12h, minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS", pattern=_TIME, sbatch="time"),
    SlurmKey(key="signal", what="a signal before the time limit, in Slurm's words: `B:USR1@120`, `USR1@2m`; drain notices need none", expected="SIGNAL, SIGNAL@TIME or B:SIGNAL@TIME", pattern=r"([RB]{1,2}:)?(SIG)?[A-Z0-9]+(@[0-9]+)?", sbatch="signal"),
    SlurmKey(key="requeue", what="whether Slurm may start the job again, after the loss of a node or a preemption; true unless given", expected="true or false"),
    SlurmKey(key="requeue-at-limit", what="at the time limit the workers save, and Slurm starts the job again: `--requeue-at-limit` of run", expected="true or false"),
    SlurmKey(key="no-image", what="true: workers run under the nodes' software, and not in the job's image", expected="true or false"),
    SlurmKey(key="comment", what="a comment", expected="a text", sbatch="comment"),
    SlurmKey(key="constraint", what="features that the nodes must have", expected="names of features", sbatch="constraint"),
    SlurmKey(key="exclude", what="nodes that are not wanted: `n[1-3],n7`", expected="names of nodes", sbatch="exclude"),
    SlurmKey(key="reservation", what="the reservation", expected="a name", sbatch="reservation"),
    SlurmKey(key="array", what="one job for each index: `0-19`, `1,3,5`, `0-99:10`; `%4` behind it: at most 4 at a time", expected="indices, as in 0-19, 1,3,5 or 0-19%4", pattern=rf"{_RANGE}(,{_RANGE})*(%[1-9][0-9]*)?", sbatch="array"),
    SlurmKey(key="output", what="the file for what is printed; `%j`, `%A`, `%a`, `%x` as in Slurm. `slurm-%j.out` unless given, `slurm-%A_%a.out` for an array", expected="the path of a file", sbatch="output"),
    SlurmKey(key="report", what="where [`report.json`](../reference/records.md#reportjson) goes too", expected="the path of a file"),
    SlurmKey(key="replace-wait", what="with too few nodes left: how long another one is waited for: seconds, or `5m`", expected=amounts.DURATION, pattern=r"[0-9]+(\.[0-9]+)?"),
    SlurmKey(key="setup", what="lines of bash that the script runs before holdfast: `module load cuda`", expected="lines"),
    SlurmKey(key="python", what="the Python that has holdfast on the nodes; the one of `holdfast submit` unless given", expected="the absolute path of a Python", pattern=r"/.*"),
)
# fmt: on

BY_KEY: dict[str, SlurmKey] = {name: own for own in OWN for name in (own.key, *own.also)}

#: sbatch options that a `slurm:` section must not contain, each with the reason.
REFUSED: dict[str, str] = {
    "job-name": "the job's `name` is the name in Slurm too",
    "ntasks": "holdfast starts one task on each node; `count` of a role says how many workers there are",
    "ntasks-per-node": "holdfast starts one task on each node; `count` of a role says how many workers there are",
    "ntasks-per-gpu": "holdfast starts one task on each node; `count` of a role says how many workers there are",
    "no-kill": "holdfast writes it wherever there are several nodes",
    "no-requeue": "it is `requeue: false` here",
    "open-mode": "holdfast writes `append`, so that a requeue keeps what was printed",
    "wrap": "the script is holdfast's",
    "wait": "it is an option: `holdfast submit --wait`",
    "parsable": "holdfast reads the id itself",
    "quiet": "holdfast reads the id itself",
    "test-only": "it is an option: `holdfast submit --dry-run`",
    "help": "it is no part of a job",
    "usage": "it is no part of a job",
    "version": "it is no part of a job",
}

WORD = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 2000
#: All other options of sbatch from 22.05 to 25.11. They serve to suggest the intended option after a typo.
_OF_SBATCH = (
    "acctg-freq batch bb bbf begin clusters cluster-constraint container contiguous core-spec cores-per-socket "
    "cpu-freq cpus-per-gpu deadline delay-boot dependency distribution error exclusive export export-file "
    "extra-node-info get-user-env gid gpu-bind gpu-freq gpus-per-socket gpus-per-task gres gres-flags hint hold "
    "ignore-pbs input kill-on-invalid-dep licenses mail-type mail-user mcs-label mem-bind mem-per-cpu mem-per-gpu "
    "mincpus network nice nodefile nodelist ntasks-per-core ntasks-per-socket overcommit oversubscribe power "
    "prefer priority profile propagate reboot resv-ports segment sockets-per-node spread-job stepmgr switches "
    "thread-spec threads-per-core time-min tmp tres-bind tres-per-task uid use-min-nodes wait-all-nodes wckey "
    "chdir "
)


class SlurmOptions(Noun, frozen=True, kw_only=True):
    """A job's validated Slurm options."""

    #: Minimum and maximum number of nodes, without spares.
    nodes: tuple[int, int] = (1, 1)
    #: Number of spare nodes; None if not set.
    spares: int | None = None
    requeue: bool = True
    #: Whether to requeue the job at its time limit; None if not set.
    at_limit: bool | None = None
    #: Whether workers run without the job's image, with the software of the nodes.
    no_image: bool = False
    #: Values of holdfast's keys that have no field in this class, by key.
    texts: dict[str, str] = {}
    setup: tuple[str, ...] = ()
    #: sbatch options that holdfast has no key for, with their values. A flag has the value None.
    further: tuple[tuple[str, str | None], ...] = ()
    #: Maps each key to the option or file that has set it, for messages about errors from sbatch.
    origins: dict[str, str] = {}

    def text(self, key: str) -> str | None:
        return self.texts.get(key)


def slurm_options(layers: Sequence[Mapping[str, SlurmValue]]) -> SlurmOptions:
    """Validate and merge the settings. Raises `BadUsage` for the first mistake.

    `layers`: maps keys to values, one map for each source of settings, the strongest source first.
    """
    found: dict[str, SlurmValue] = {}
    for layer in reversed(layers):
        seen: dict[str, str] = {}
        for name, given in layer.items():
            key = _key(name, given)
            if key in seen:
                raise BadUsage(f"{given.origin}: `{seen[key]}` says the same: expected one of the two", hint=given.hint)
            seen[key] = name
            if given.value is None:
                raise BadUsage(
                    f"{given.origin}: nothing stands there; expected {BY_KEY[key].expected}"
                    if key in BY_KEY
                    else f"{given.origin}: nothing stands there; expected a value, or true for `--{key}` without one",
                    hint=given.hint,
                )
            found[key] = given
    texts = {own.key: _text(own, found[own.key]) for own in OWN if own.key in found and own.key not in _CONVERTED_KEYS}
    spares = found.get("spares")
    return SlurmOptions(
        nodes=_nodes(found["nodes"]) if "nodes" in found else (1, 1),
        spares=int(_text(BY_KEY["spares"], spares)) if spares is not None else None,
        requeue=_flag(found["requeue"]) if "requeue" in found else True,
        at_limit=_flag(found["requeue-at-limit"]) if "requeue-at-limit" in found else None,
        no_image=_flag(found["no-image"]) if "no-image" in found else False,
        texts=texts,
        setup=_lines(found["setup"]) if "setup" in found else (),
        further=tuple(_further(key, given) for key, given in found.items() if key not in BY_KEY and _is_there(given)),
        origins={key: given.origin for key, given in found.items()},
    )


#: holdfast's keys whose value is validated and converted, and not stored as text.
_CONVERTED_KEYS = ("nodes", "spares", "requeue", "requeue-at-limit", "no-image", "setup")


def nearest(word: str) -> str:
    """Return the key or sbatch option that a misspelt word probably means.

    Return "" if it is valid or nothing is near.
    """
    import difflib  # imported late: only a mistake needs it

    names = [*BY_KEY, *REFUSED, *_OF_SBATCH.split()]
    found = [] if word in names else difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    return found[0] if found else ""


def _key(name: str, given: SlurmValue) -> str:
    """Return the canonical spelling of a key. Raises `BadUsage` for a word that cannot be an sbatch option."""
    key = name.strip().lstrip("-").replace("_", "-")
    if key in REFUSED:
        raise BadUsage(f"{given.origin}: {REFUSED[key]}", hint=given.hint)
    if key in BY_KEY:
        return BY_KEY[key].key
    if not WORD.fullmatch(key) or len(key) < 2:
        raise BadUsage(
            f"{given.origin}: expected the long name of an option of sbatch in small letters, as in `mail-type`",
            hint="man sbatch",
        )
    return key


def _text(own: SlurmKey, given: SlurmValue) -> str:
    """Validate the value of a key and return it as text. Raises `BadUsage` for a user's mistake."""
    value = given.value
    if isinstance(value, tuple):
        value = ",".join(value)
    if not isinstance(value, str):
        quoted = f"; `{str(value).lower()}` as a text stands in quotes" if not own.pattern else ""
        raise BadUsage(f"{given.origin}: expected {own.expected}, got {str(value).lower()}{quoted}", hint=given.hint)
    text = _in_slurms_units(own.key, _one_line(value.strip(), given))
    if not text or (own.pattern and not re.fullmatch(own.pattern, text)):
        raise BadUsage(
            f"{given.origin}: expected {own.expected}, got {_shown(text)}{_also(own.key, text)}", hint=given.hint
        )
    if own.key == "array" and any(int(last) < int(first) for first, last in re.findall(r"([0-9]+)-([0-9]+)", text)):
        raise BadUsage(f"{given.origin}: expected {own.expected}, the smaller index first, got {text}", hint=given.hint)
    if own.key == "memory" and text != "0":
        return text.rstrip("Bbi").upper()
    return text


def _in_slurms_units(key: str, text: str) -> str:
    """Convert a duration with a unit that Slurm does not know: `2h` becomes `2:00:00`. Return other text as it is."""
    before, at, wait = text.rpartition("@") if key == "signal" else ("", "", text)
    if key not in ("time", "signal", "replace-wait") or wait[-1:].isdigit():
        return text
    found = amounts.seconds(wait)
    if found is None or found <= 0:
        return text
    if key == "time":
        minutes, seconds = divmod(math.ceil(found), 60)
        days = f"{minutes // 1440}-" if minutes >= 1440 else ""
        return f"{days}{minutes // 60 % 24}:{minutes % 60:02}:{seconds:02}"
    return f"{before}{at}{math.ceil(found) if at else found:g}"


def _also(key: str, text: str) -> str:
    """Return a hint about a common mistake with this key."""
    if key == "memory" and text.isdigit():
        return f" (for Slurm a bare number is MB: write {text}M)"
    return ""


def _nodes(given: SlurmValue) -> tuple[int, int]:
    text = _text(BY_KEY["nodes"], given)
    least, _, most = text.replace("-", ":").partition(":")
    if most and int(most) < int(least):
        raise BadUsage(f"{given.origin}: expected MIN:MAX with the smaller number first, got {text}", hint=given.hint)
    return int(least), int(most or least)


def _flag(given: SlurmValue) -> bool:
    if isinstance(given.value, bool):
        return given.value
    raise BadUsage(f"{given.origin}: expected true or false, got {_shown(str(given.value))}", hint=given.hint)


def _lines(given: SlurmValue) -> tuple[str, ...]:
    """Return the value's lines of bash.

    They are the user's code, so only a NUL and a value that is no text are refused.
    """
    value = given.value
    texts = value if isinstance(value, tuple) else (value,)
    lines = [line for text in texts for line in str(text).splitlines()]
    if not all(isinstance(text, str) for text in texts) or any("\0" in line for line in lines):
        raise BadUsage(f"{given.origin}: expected lines of bash, as in [module load cuda]", hint=given.hint)
    return tuple(line for line in lines if line.strip())


def _is_there(given: SlurmValue) -> bool:
    return given.value is not False


def _further(key: str, given: SlurmValue) -> tuple[str, str | None]:
    value = given.value
    if value is True:
        return key, None
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return key, _one_line(text.strip(), given)


def _one_line(text: str, given: SlurmValue) -> str:
    """Return the text, or raise `BadUsage` if it has line ends or control characters, or is too long for sbatch."""
    if bad := next((letter for letter in text if not letter.isprintable()), None):
        raise BadUsage(f"{given.origin}: expected one line without {_letter(bad)}", hint=given.hint)
    if len(text.encode(errors="replace")) > _LONGEST:
        raise BadUsage(f"{given.origin}: expected at most {_LONGEST} bytes, got {len(text)}", hint=given.hint)
    return text


def _letter(letter: str) -> str:
    return "a line end" if letter in "\n\r\x0b\x0c\x85\u2028\u2029" else f"the character U+{ord(letter):04X}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")

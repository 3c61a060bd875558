"""Parses raw log text into lines with rank, time and level, without prefixes, colours and progress bars.

Launchers write prefixes before the program's lines, often several of them (`1129:[default0]:[rank0]:[W1120 21:56:12.8
socket.cpp:764] …`). The patterns of the catalogue only see the rest of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.explain.logs import time_stamps
from holdfast.explain.logs.raw_log_lines import shared_tags, split, unquoted
from holdfast.explain.logs.time_stamps import Origin
from holdfast.explain.text.system_errors import in_english

_HEADER = "Traceback (most recent call last):"
_FRAME = '  File "'
#: The last line of a traceback. This pattern is needed because frames may be missing from a shortened log.
_LAST = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")
#: Number of lines after a traceback's header in which to search for a frame or an exception's line with the same
#: prefix. Lines of other ranks may lie between.
_NEAR = 40
_LONGEST = 120
_MOST_FORMS = 16
#: Prefixes that the traceback parser handles: an exception group's margin, torchrun's box.
_DRAWN = re.compile(r"[\s+|]*(?:traceback\s*: )?(?:Exception Group )?")
_RANK = re.compile(r"(?i)\brank[ _=:]{0,2}(\d{1,9})\b")
_DIGITS = re.compile(r"\d+")


def _learnt(texts: Sequence[str]) -> tuple[re.Pattern[str] | None, frozenset[int]]:
    """Return the pattern of prefixes that an unknown launcher writes before each line of this log; None: there are
    none.

    Text before a traceback's header is such a prefix if a later line of the traceback begins with the same text. Also
    return the indices of headers after other text, which is no prefix.
    """
    forms: dict[str, None] = {}
    alone: set[int] = set()
    for index, text in enumerate(texts):
        at = text.find(_HEADER, 1)
        if at < 1 or at > _LONGEST or _DRAWN.fullmatch(text, 0, at):
            continue
        prefix = text[:at]
        near = texts[index + 1 : index + 1 + _NEAR]
        if any(other.startswith(prefix + _FRAME) for other in near) or any(
            other.startswith(prefix) and _LAST.match(other, len(prefix)) for other in near
        ):
            words = prefix.rstrip()
            end = f"(?:{re.escape(prefix[len(words) :])}|$)" if words != prefix else ""
            if len(forms) < _MOST_FORMS:
                forms[_DIGITS.sub(r"\\d+", re.escape(words)) + end] = None
        elif index + 1 < len(texts) and texts[index + 1].startswith(_FRAME):
            alone.add(index)
    if not forms:
        return None, frozenset(alone)
    return re.compile("|".join(sorted(forms, key=len, reverse=True))), frozenset(alone)


def _without_header_words(text: str) -> str:
    """Return a traceback's header, without the words before it on its line."""
    return text[text.index(_HEADER) :]


def _rank_in(prefix: str) -> int | None:
    """Return the rank that a prefix names; None: the prefix names no rank."""
    found = _RANK.search(prefix)
    return int(found[1]) if found else None


class Line(NamedTuple):
    """One line of a log."""

    #: The number of the line in the log, from 1.
    number: int
    #: The line without prefixes, colours and trailing blanks, but with its indentation.
    text: str
    #: The line with its prefixes, without colours.
    raw: str
    rank: int | None
    #: A name of the program or process that wrote the line, equal for all of its lines; empty: unknown.
    stream: str
    #: Time in seconds. Only differences between such times within one text are meaningful; `moment` is an absolute
    #: time.
    at: float | None
    #: The log level: D, I, W, E or F; empty: unknown.
    level: str
    kernel: bool = False
    #: The line with the logger's level and place before `text`; empty if no logger wrote the line.
    logged: str = ""
    #: Whether `at` is an absolute time, and not a clock time without a date or the kernel's seconds since boot.
    dated: bool = False
    #: The name of the log file.
    source: str = ""

    @property
    def moment(self) -> float | None:
        """When the line was written, in seconds since the epoch; None if the line has no date."""
        return self.at if self.dated else None


_LEVELS = {
    "TRACE": "D", "DEBUG": "D", "INFO": "I", "NOTICE": "I", "WARN": "W", "WARNING": "W", "ERROR": "E", "ERR": "E",
    "SEVERE": "E", "CRITICAL": "F", "FATAL": "F", "EXCEPTION": "E", "EVENT": "I",
}  # fmt: skip
_LEVEL_WORD = r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|SEVERE|CRITICAL|FATAL|EVENT"

_TAGS = re.compile(
    r"""(?P<mpi>\[(?:(?:[\w.-]{1,80}@)?(?:job)?\d+,(?:mpirank:)?)?(?P<mpi_rank>\d{1,9})(?:,[\w.-]{1,80})?\]<(?:std)?(?:out|err|diag)>:?\s?)
    |(?P<srun>\s{0,4}(?P<srun_rank>\d{1,6}):\s?(?=\S|\s|$))
    |(?P<default>\[(?:default|local_rank|worker|trainer)_?(?P<default_rank>\d{1,9})\]:\s?)
    |(?P<worker>\[worker-(?P<worker_rank>\d{1,6})\](?:\s|$))
    |(?P<rank>\[[Rr]ank[ _:=]?(?P<rank_rank>\d{1,9})\](?::\s?|\s(?=[\[A-Z]|\s)))
    |(?P<hydra>\[(?P<hydra_rank>\d{1,5})\]\s(?=\s|[A-Z][\w.]*(?:Error|Exception|Interrupt):|Traceback\b))
    |(?P<bare>(?:<[Rr]ank\s?(?P<bare_rank>\d{1,9})>|[Rr]ank\s?(?P<bare2_rank>\d{1,9})\s?[:|])\s?(?=\S|\s|$))
    |(?P<ray>\((?=[^()]*(?:\([^()]*\)[^()]*)?pid=)(?P<ray_tag>[\w.:\[\]<> -]*(?:\([^()]*\))?[^()]*)\)\s?)
    |(?P<raylet>\((?P<raylet_tag>raylet|autoscaler\s?\S*|gcs_server|dashboard|scheduler)(?:,\ ip=[\d.]+)?\)\s?)
    |(?P<pod>\[pod/(?P<pod_tag>[^\]\s]+)\]\s?)
    |(?P<compose>(?P<compose_tag>[A-Za-z][\w.-]{0,80}[-_]\d{1,6})\s{0,40}\|\s?)
    |(?P<service>(?P<service_tag>[a-z][a-z0-9_.-]{0,80})\s{2,40}\|\s(?=\S|\s))
    |(?P<cri>(?P<cri_stream>stdout|stderr)\s[FP]\s)
    |(?P<std><?(?:stdout|stderr)>?(?:\s?:\s|\s?\|\s?))
    |(?P<column>\s{0,4}\|\s(?=\d{4}-\d\d-\d\d[T\ ]\d))
    |(?P<panel>\s{0,4}[│┃]\s?)
    |(?P<logger>\[(?P<logger_tag>[A-Za-z_][\w.]*)\](?=\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]))
    """,
    re.VERBOSE,
)
_RANKS = tuple(name for name in _TAGS.groupindex if name.endswith("_rank"))
_OURS = "holdfast: "
_OUR_ROLE = re.compile(r"\[[A-Za-z][\w.-]{0,62}-(?P<ranks>\d{1,6}(?:(?:, | to )\d{1,6}){0,64})\](?:\s|$)")
#: The end of a line that `observe.traceback_fold` writes. Such a line stands for the equal tracebacks of several ranks.
_OUR_FOLD = re.compile(r" \((?:after the [^()]{1,40}|the same traceback as rank \d{1,9}); whole text in the logs\)$")
_OUR_VERDICT = re.compile(
    r"holdfast: job \S+ \(.{1,80}?\) (?P<end>SUCCEEDED|FAILED|STOPPED)\b"
    r"(?:: (?P<phrase>[A-Z][A-Za-z0-9]{1,63}) \(exit code )?"
)
_OUR_EXIT = re.compile(
    r"holdfast: attempt \d+: \S+ rank (?P<rank>\d{1,9}) \(pid (?P<pid>\d{1,9})\) on (?P<host>\S+): "
    r"(?:exit status (?P<code>\d{1,9})|(?P<name>SIG[A-Z0-9]+))"
)
_TAG_RANK = re.compile(r"(?:_TP|_DP|_PP|_EP|TP|[Rr]ank[ _=]?)(\d{1,9})")

_TIME = re.compile(
    r"""\[?(?:
      (?P<y>\d{4})[-/.](?P<mo>\d\d)[-/.](?P<d>\d\d)[T\ _-]+(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?P<f>[.,:]\d{1,9}(?:[.:]\d{1,6})?)?
        (?P<z>\s?(?:Z|UTC|[+-]\d\d:?\d\d)(?![\w:]))?
    | (?P<gl>[IWEFCD])(?P<gmo>\d\d)(?P<gd>\d\d)\ +(?P<gh>\d\d):(?P<gmi>\d\d):(?P<gs>\d\d)(?P<gf>\.\d+)?(?:\ +\d+)?(?:\ +[\w./+-]+\.\w{1,4}:\d+)?
    | (?P<smo>[A-Z][a-z]{2})\ {1,2}(?P<sd>\d{1,2})\ (?P<sh>\d\d):(?P<smi>\d\d):(?P<ss>\d\d)(?P<sf>\.\d+)?(?:\ (?P<sy>20\d\d))?
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\ (?P<cmo>[A-Z][a-z]{2})\ {1,2}(?P<cd>\d{1,2})\ (?P<ch>\d\d):(?P<cmi>\d\d):(?P<cs>\d\d)(?:\ (?:(?P<cz>UTC|GMT)|[A-Z]{2,4}))?\ (?P<cy>\d{4})
    | (?P<amo>\d\d)/(?P<ad>\d\d)/(?P<ay>\d{4}|\d\d),?\ (?P<ah>\d\d):(?P<ami>\d\d):(?P<as>\d\d)(?P<af>[.,]\d+)?(?:\ [AP]M)?
    | (?P<vmo>\d\d)-(?P<vd>\d\d)\ (?P<vh>\d\d):(?P<vmi>\d\d):(?P<vs>\d\d)(?P<vf>[.,]\d+)?
    | (?P<nd>\d\d)/(?P<nmo>[A-Z][a-z]{2})/(?P<ny>\d{4})[:\ ](?P<nh>\d\d):(?P<nmi>\d\d):(?P<ns>\d\d)(?P<nz>\ [+-]\d{4})?
    | (?P<th>\d\d):(?P<tmi>\d\d):(?P<ts>\d\d)(?P<tf>[.,]\d+)?(?=[\s\]|])
    | (?P<ep>1[5-9]\d{8})(?P<ef>\.\d+|\d{3}(?:\.\d+)?|\d{6}|\d{9})?(?=[\s\]:|])
    )\]?(?:\s?[|:])?\s?""",  # noqa: E501 - one kind of timestamp a line
    re.VERBOSE,
)
_BOOT = re.compile(r"(?:<\d+>)?\[\s{0,6}(?P<t>\d{1,9}\.\d{6})\]\s?")
_KERNEL = re.compile(r"(?P<host>[\w.-]+)\s(?:kernel|dmesg)(?:\[\d+\])?:\s?(?:\[\s*\d+\.\d+\]\s?)?")
_PROGRAM = re.compile(r"(?P<host>[\w.-]+)\s(?P<program>[\w./@-]+\[\d+\]):\s?")
_LEVEL = re.compile(
    rf"""(?:\[(?P<b>(?i:{_LEVEL_WORD}))\]|<(?P<a>(?i:{_LEVEL_WORD}))>|[|-]?\s*(?P<w>{_LEVEL_WORD})(?=[\s:|\]\[-]|$)|level=(?P<l>\w+))
    (?:\s*\|\s?|\s?(?::\s?|-\s)?)""",
    re.VERBOSE,
)
_PLACE = re.compile(
    r"[\[(]?(?:[\w.-]+/)*[\w.-]+\.(?:py|cc?|cpp|cu|h|hpp|go|rs|java)(?::\w+)?:\d+(?::\w+)?[\])]?(?:\s?(?:[:|]|--|-)\s)?\s?"
    r"|[\w.<>]{1,120}:[\w.<>]{1,80}:\d{1,6} - "
)
_LEAD_LEVEL = re.compile(rf"\s*\[?(?P<w>{_LEVEL_WORD})\b[\]:]?", re.IGNORECASE)
_JSON_TEXT = re.compile(r'"(?:log|message|msg|text)"\s*:\s*"((?:[^"\\]|\\.)*)"')

#: Maximum number of ranks that one folded line names.
MOST_RANKS = 1024

_NOWHERE = Origin()


def parse(text: str, first_number: int = 1, origin: Origin = _NOWHERE) -> list[Line]:
    """Parse a text into lines, oldest first. A log with the newest line on top is reversed."""
    physical = split(text)
    form = shared_tags([raw for raw, _ in physical])
    lines = [
        bare(raw, first_number + number, origin) if form is None else _tagged(raw, first_number + number, origin, form)
        for raw, number in physical
    ]
    if _OURS + "attempt " in text:
        lines = _workers_words(lines, origin)
    if "Traceback (most recent call last):" in text:
        lines = _without_unknown_prefixes(lines)
    return lines[::-1] if newest_first(lines) else lines


def _tagged(raw: str, number: int, origin: Origin, form: re.Pattern[str]) -> Line:
    """Parse one line of a log in which a tag of this form begins each line.

    The tag names the writer and sometimes the rank.
    """
    match = form.match(raw)
    if match is None:
        return bare(raw, number, origin)
    line = bare(raw[match.end() :], number, origin)
    rank = match.groupdict().get("rank")
    told = line.rank if line.rank is not None or rank is None else int(rank)
    return line._replace(raw=raw, rank=told, stream=line.stream or match["tag"])


def _workers_words(lines: list[Line], origin: Origin) -> list[Line]:
    """Blank the lines of holdfast's own report in the output of `holdfast run`: the report must not be explained again.

    The lines about a worker's exit stay.
    """
    found: list[Line] = []
    in_report = False
    for line in lines:
        if line.raw.startswith(_OURS):
            in_report = _OUR_VERDICT.match(line.raw) is not None
            text = line.raw if our_exit(line.raw) else ""
            found.append(line._replace(text=text, raw=text, rank=None, stream="holdfast", level="", logged=""))
        elif tag := _OUR_ROLE.match(line.raw):
            in_report = False
            word = bare(_OUR_FOLD.sub("", line.raw[tag.end() :]), line.number, origin)
            told = _ranks_of(tag["ranks"])
            found.extend(word._replace(raw=line.raw, rank=rank, stream=f"rank {rank}") for rank in told)
        elif in_report and line.raw.startswith("  "):
            found.append(line._replace(text="", raw="", stream="holdfast", level="", logged=""))
        else:
            in_report = False
            found.append(line)
    return found


def _ranks_of(text: str) -> Iterator[int]:
    """Yield the rank numbers of a text such as `0, 2 to 5`."""
    for run in text.split(", "):
        first, _, last = run.partition(" to ")
        yield from range(int(first), min(int(last or first), int(first) + MOST_RANKS) + 1)


def _without_unknown_prefixes(lines: list[Line]) -> list[Line]:
    """Remove the prefix of an unknown launcher. `_learnt` recognises such a prefix by the tracebacks in the log."""
    form, alone = _learnt([line.text for line in lines])
    if form is None and not alone:
        return lines
    found: list[Line] = []
    for index, line in enumerate(lines):
        if index in alone:
            found.append(line._replace(text=_without_header_words(line.text)))
        elif form is not None and (match := form.match(line.text)):
            rank = line.rank if line.rank is not None else _rank_in(match[0])
            found.append(
                line._replace(text=line.text[match.end() :], rank=rank, stream=line.stream or match[0].strip())
            )
        else:
            found.append(line)
    return found


def our_exit(text: str) -> re.Match[str] | None:
    """Match a line of `holdfast run` about a worker's exit; the groups are `rank`, `pid`, `host`, and `code` or
    `name`."""
    return _OUR_EXIT.match(text)


def our_verdict(text: str) -> tuple[str, int] | None:
    """Return the failure class in the last line of `holdfast run` about a job's end, and the line's index.

    None: no such line names a class. Empty: the job succeeded.
    """
    if _OURS + "job " not in text:
        return None
    found: tuple[str, int] | None = None
    for index, line in enumerate(text.splitlines()):
        if match := _OUR_VERDICT.match(line):
            named = match["phrase"] or ""
            found = (named, index) if named or match["end"] == "SUCCEEDED" else None
    return found


def bare(raw: str, number: int, origin: Origin = _NOWHERE) -> Line:
    """Parse one raw line: remove all prefixes of launchers and loggers."""
    rank: int | None = None
    stream = level = ""
    at: float | None = None
    kernel = dated = False
    logged = ""
    text = raw
    if text.startswith("{") and text.endswith("}") and (inner := _JSON_TEXT.search(text)):
        text = unquoted(inner[1])
        if found := re.search(r'"(?:level|severity|levelname)"\s*:\s*"(\w+)"', raw):
            level = _LEVELS.get(found[1].upper(), "")
    for _ in range(10):
        before = text
        if match := _BOOT.match(text):
            kernel = True
            at = float(match["t"]) if at is None else at
            text = text[match.end() :]
            continue
        if match := _TIME.match(text):
            stamp = time_stamps.read_stamp(match, origin)
            stamp_is_syslog = match["smo"] is not None
            letter = stamp.level if stamp is not None else ""
            if stamp is not None and (at is None or (stamp.dated and not dated)):
                at, dated = stamp.at, stamp.dated
            level = letter or level
            text = text[match.end() :]
            if match := _KERNEL.match(text):
                kernel = True
                text = text[match.end() :]
            elif stamp_is_syslog and (match := _PROGRAM.match(text)):
                stream = stream or f"{match['host']} {match['program']}"
                text = text[match.end() :]
            if letter and text.startswith("]"):
                text = text[1:].lstrip()
            continue
        if match := _TAGS.match(text):
            groups = match.groupdict()
            if groups["panel"] is not None:
                text = text.rstrip("│┃ ")
            for name in _RANKS:
                if groups[name] is not None:
                    # The worker itself writes the last tag before the text, so that tag overrides the launchers' tags.
                    rank = int(groups[name])
                    stream = f"rank {rank}"
            for name in ("ray_tag", "raylet_tag", "pod_tag", "compose_tag", "service_tag"):
                if tag := groups[name]:
                    stream = tag
                    if found := _TAG_RANK.search(tag):
                        rank = int(found[1])
            text = text[match.end() :]
            continue
        if (at is not None or stream or text.startswith("[")) and (match := _LEVEL.match(text)) and match.end() > 0:
            level = _LEVELS.get((match["b"] or match["a"] or match["w"] or match["l"] or "").upper(), level)
            logged = logged or text
            text = text[match.end() :]
            continue
        if (match := _LEVEL.match(text)) and _TIME.match(text, match.end()):
            level = _LEVELS.get((match["b"] or match["a"] or match["w"] or match["l"] or "").upper(), level)
            logged = logged or text
            text = text[match.end() :]
            continue
        if (at is not None or level) and (match := _PLACE.match(text)) and text[match.end() :].strip():
            logged = logged or text
            text = text[match.end() :]
            continue
        if text == before:
            break
    if not level and ("NCCL INFO" in text or "NCCL TRACE" in text):
        level = "I"
    if not level and (match := _LEAD_LEVEL.match(text)):
        level = _LEVELS.get(match["w"].upper(), "")
    return Line(number, in_english(text), raw, rank, stream, at, level, kernel, logged, dated, origin.source)


def newest_first(lines: list[Line]) -> bool:
    """Return whether the newest line is on top. The times of the lines decide, or else the direction of tracebacks."""
    rising = falling = 0
    last: float | None = None
    for line in lines:
        if line.at is None or line.kernel:
            continue
        if last is not None and line.at != last:
            rising += line.at > last
            falling += line.at < last
        last = line.at
    if rising + falling >= 3:
        return falling > 4 * rising
    upright = flipped = 0
    for index, line in enumerate(lines):
        if line.text.lstrip().startswith("Traceback (most recent call last)"):
            below = next((other.text for other in lines[index + 1 : index + 3] if other.text.strip()), "")
            above = next((other.text for other in lines[max(0, index - 3) : index][::-1] if other.text.strip()), "")
            upright += below.lstrip().startswith('File "')
            flipped += not below.lstrip().startswith('File "') and (
                above.lstrip().startswith('File "') or above.startswith("    ")
            )
    return flipped > upright


def streams(lines: list[Line]) -> Iterator[tuple[str, list[Line]]]:
    """Yield each writer with its lines, in the order of their first lines."""
    by: dict[str, list[Line]] = {}
    for line in lines:
        by.setdefault(line.stream, []).append(line)
    yield from by.items()

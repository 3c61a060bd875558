"""Finds the statement with which a log ends well: a success, or the orderly shutdown of a server that was asked to stop.

A scheduler's or launcher's status is about the whole job. A program's own words count only near the end of its log, with
no sign of work after them.
"""

# ruff: noqa: E501 - one program's words a line
from __future__ import annotations

from collections.abc import Sequence

from holdfast.explain.logs.log_lines import Line
from holdfast.lazy_pattern import Lazy
from holdfast.model.worker_reading import EndKind, OrderlyEnd, QuotedLine

#: Number of lines, of those that are not blank, at the end of a log in which a program's own words count.
_NEAR = 40
_MOST_CHARS = 500

# fmt: off
#: (the program that states it, its words) for a success of the whole job.
STATUSES: tuple[tuple[str, Lazy], ...] = (
    ("Slurm", Lazy(r"\b(?:Job)?State[=:] ?COMPLETED\b|\|COMPLETED\||\bCOMPLETED\s+0:0(?:\s|$)")),
    ("LSF", Lazy(r"^Successfully completed\.$")),
    ("HTCondor", Lazy(r"Normal termination \(return value 0\)|terminated of its own accord .{0,60}with exit-code 0\b")),
    ("PBS", Lazy(r"\b[Ee]xit_status ?= ?0$")),
    ("Grid Engine", Lazy(r"^exit_status\s{2,}0\b")),
    ("Kubernetes", Lazy(r"^\s*Reason:\s+Completed$|^\s*Exit Code:\s+0$|^\s*Status:\s+Succeeded$|\"?phase\"?: ?\"?Succeeded\b|\bjob\S* \S+ is successfully completed")),
    ("Ray", Lazy(r"^(?:.{0,80}-- )?Job '?\S+?'? succeeded$")),
    ("Docker", Lazy(r"^\S+ exited with code 0$|\bExited \(0\) \S+ .{0,20}ago")),
    ("supervisord", Lazy(r"exited: \S+ \(exit status 0; expected\)")),
    ("systemd", Lazy(r"\bsystemd\[\d+\]: \S+\.service: (?:Deactivated successfully|Succeeded)\.$")),
    ("torchrun", Lazy(r"worker group successfully finished|Done waiting for other agents\. Elapsed: .{0,40}SUCCEEDED")),
    ("DeepSpeed", Lazy(r"\[launch\.py:\d+:main\] Process \d+ exits successfully")),
    ("", Lazy(r"^(?:\[?[Ee]xit(?:ed)? (?:status|code|with code|with status)[:=]? ?0\]?\.?|[Pp]rocess finished with exit code 0)$")),
)
#: A program's own words for its success.
OWN_WORDS: tuple[Lazy, ...] = (
    Lazy(r"(?i)^\W{0,10}(?:all )?(?:done|finished|completed|success(?:ful(?:ly)?)?)\b[ !.]{0,3}(?:$|\(? ?(?:in|after|at|total|took|elapsed|final|best|saved|exiting|bye)\b)"),
    Lazy(r"(?i)\b(?:(?:pre-?|post-?)?training|fine-?tuning|distillation|run|job|evaluation|experiment|inference|benchmark|preprocessing|conversion|quanti[sz]ation|workflow|pipeline|script|program|all (?:\w+ ){0,2}(?:tasks|jobs|steps|epochs|runs|requests|stages|experiments|files|ranks|workers)|everything)\b(?: [\w-]+){0,2}? (?:is |are |was |were |has |have |now )?(?:been )?(?:successfully )?(?:complete[d]?|finished|done|succeeded|successful)\b"),
    Lazy(r"(?i)\bsuccessfully (?:completed|finished|trained|fine-?tuned|ended)\b|\b(?:completed|finished|ended|exit(?:ed|ing)) (?:successfully|cleanly|normally|without errors?)\b"),
    Lazy(r"(?i)\b(?:final|last) (?:\w+ )?(?:model|checkpoint|weights|adapter|results)\b.{0,60}\b(?:saved|written|exported|uploaded|stored)\b|\b(?:saved|saving|wrote|exported|written|uploaded)\b.{0,40}\b(?:final|last) (?:\w+ )?(?:model|checkpoint|weights|adapter|results)\b"),
)
#: Summaries that programs print when all is done.
SUMMARIES: tuple[Lazy, ...] = (
    Lazy(r"^(?:.{0,80}\s)?`?Trainer\.fit`? stopped: `?max_(?:epochs|steps|time)=\S+ reached"),
    Lazy(r"'train_runtime': ?\d|^\*{3,} (?:train|eval|predict|test) metrics \*{3,}$|\bTraining completed\. Do not forget to share"),
    Lazy(r"^=+ \d+ passed(?:, \d+ (?:skipped|warnings?|xfailed|xpassed|deselected))* in [\d.]+s(?: \([\d:]+\))? =+$|^\[  PASSED  \] \d+ tests?\.$|^OK(?: \(skipped=\d+\))?$"),
)
#: A server was asked to stop, or stops as it does only when it is asked.
_ASKED = Lazy(r"(?i)\bhandling signal: (?:term|int|hup|quit)\b|\bsignal \(?(?:2|15|SIGTERM|SIGINT)\)? (?:was )?received|\b(?:received|caught|got|by|on) (?:an? |the )?(?:shutdown |exit |stop |termination )?(?:signal[: ]{1,2}\(?(?:2|15|term|int|sigterm|sigint)\b|sig(?:term|int|hup)\b)|\breceived (?:a |the )?(?:exit|shutdown|stop|termination) (?:signal|request)|^(?:\w+:\s+)?Shutting down$|\bsignal handler called with signal (?:2|15)\b|^\^C$")
#: Its shutdown came to its end.
_DOWN = Lazy(r"(?i)\bapplication shutdown complete\b|\bshutting down: master\b|\bfinished server process\b|\ball models are stopped\b|\bserver (?:has |was |is )?(?:been )?(?:stopped|shut ?down|closed|terminated gracefully)\b|\bshut ?down (?:is |was )?(?:complete[d]?|finished|successful)|\b(?:graceful(?:ly)?|clean(?:ly)?|orderly) (?:shut(?:ting)? ?down|stopp(?:ed|ing)|exit(?:ed|ing)?|terminat(?:ed|ing|ion))\b|\b(?:stopped|exited|shut down|terminated) (?:gracefully|cleanly)\b")
# fmt: on
#: The last line of a server that ended without an error. It does not say who stopped the server.
_SERVED = Lazy(r"(?i)^(?:\w+:\s+)?(?:application shutdown complete|finished server process)\b|\bshutting down: master$")
#: Words after which a statement is no success: `training was not completed`, `0 of 8 done`, `if training is done`.
_DENIED = Lazy(
    r"(?i)\b(?:not|never|un\w*success\w*|incomplete|fail(?:ed|ure)?s?|errors?(?! 0)|abort\w*|without (?:being )?(?:completed|finished)|if|when|until|once|before|unless|wait\w*|will|would|should|expected|cancel\w*|timed? out)\b"
)
_FINE = Lazy(r"(?i)\b(?:0|no|without(?: any)?) (?:errors?|failures?|failed)\b")
#: One part of the work is over, and not the work.
_PART = Lazy(
    r"(?i)\b(?:epoch|step|iteration|iter|batch|shard|round|phase|warm-?up|initiali[sz]\w+|loading|download\w*|load)\b"
)
_LAST_PART = Lazy(r"\b(\d{1,9})\s?(?:/|of)\s?\1\b")


def orderly_end(lines: Sequence[Line], working: Sequence[bool]) -> OrderlyEnd | None:
    """Return the last statement of a good end in these lines; None: the log ends in another way, or in the middle.

    working: for each line, whether it shows the program at work.
    """
    shut = _shutdown(lines)
    left = _NEAR
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        text = line.text[:_MOST_CHARS]
        if not text.strip():
            continue
        by = next((by for by, words in STATUSES if words.search(text)), None)
        if by is not None:
            return shut or OrderlyEnd(line=_quoted(line), by=by, whole=True)
        left -= 1
        if left >= 0 and _ends_well(text):
            return shut or OrderlyEnd(line=_quoted(line))
        if left < 0 or working[index]:
            return shut
    return shut


def _ends_well(text: str) -> bool:
    if any(words.search(text) for words in SUMMARIES):
        return True
    if not any(words.search(text) for words in OWN_WORDS):
        return False
    part = _PART.search(text) is not None and _LAST_PART.search(text) is None
    return not part and _DENIED.search(_FINE.sub("", text)) is None


def _shutdown(lines: Sequence[Line]) -> OrderlyEnd | None:
    """Return the end of a server's shutdown that somebody asked for, if it is among the last lines."""
    spoken = [line for line in lines[-4 * _NEAR :] if line.text.strip()][-_NEAR:]
    down = next((at for at in range(len(spoken) - 1, -1, -1) if _DOWN.search(spoken[at].text[:_MOST_CHARS])), None)
    if down is None:
        return None
    if "?" in spoken[down].text or "remote" in spoken[down].text:
        return None  # it speaks of another server
    asked = any(_ASKED.search(line.text[:_MOST_CHARS].strip()) for line in spoken[: down + 1])
    if not asked and _SERVED.search(spoken[down].text) is None:
        return None
    return OrderlyEnd(line=_quoted(spoken[down]), kind=EndKind.SHUT_DOWN if asked else EndKind.SUCCESS)


def _quoted(line: Line) -> QuotedLine:
    return QuotedLine(
        text=line.text, prefixed=line.raw if line.raw != line.text else "", number=line.number, source=line.source,
        moment=line.moment, rank=line.rank,
    )  # fmt: skip

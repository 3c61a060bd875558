"""Writes the *fix* of a report: at most two whole sentences, for this failure, with its rank, number and limit.

The catalogue's solution is for every failure of a class. If the report's facts give better advice, that advice replaces
a general sentence that only says where to look. A sentence that repeats the report's previous line is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import ExitReport
from holdfast.model.phrases import Phrase
from holdfast.report.failure_place import FailurePlace
from holdfast.safe_text import one_line

MOST_SENTENCES = 2
_END = Lazy(r"[.!?] (?=[A-Z`'\"])")
_LIMIT = Lazy(r"\blimit (?P<size>[\d.]+ [KMGT]?i?B)\b")
#: Exit statuses that Python, a shell or timeout(1) sets, so that the program need not contain such a number.
_USUAL = frozenset({0, 120, 124, 125, 126, 127})


def fix_of(report: ExitReport, scene: FailurePlace, job: str = "") -> str:
    """Return the report's fix; empty if the report has no solution.

    `scene`: the place of the failure. `job`: the job's id, for a command to type.
    """
    if not report.solution:
        return ""
    sentences = [*_known(report, scene, job), *_general(report, scene)]
    return " ".join(sentences[:MOST_SENTENCES])


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text. A full stop within brackets or a quoted command does not end a sentence."""
    found, begin = [], 0
    for end in _END.finditer(text):
        part = text[begin : end.start() + 1]
        if part.count("`") % 2 == 0 and part.count("(") <= part.count(")"):
            found.append(part)
            begin = end.end()
    return [*found, text[begin:]]


def _known(report: ExitReport, scene: FailurePlace, job: str) -> Iterator[str]:
    """Yield advice that follows from the facts of this report."""
    rank = report.first.rank if report.first is not None else None
    logs = f": `holdfast logs {job} --attempt {report.attempt} --rank {rank}`" if job else ""
    match report.phrase:
        case Phrase.UNEXPLAINED if (status := report.original.exit_code) is not None and status not in _USUAL:
            runs = f"what rank {rank} runs" if rank is not None else "the program"
            other = f"{status} is no status of Python's or of a signal" if status != 1 else "no exception was printed"
            yield f"Search {runs} for `sys.exit({status})`, `os._exit({status})` or `exit {status}`: {other}."
        # the other ranks waited for this rank
        case Phrase.COLLECTIVE_TIMEOUT if rank is not None and not report.original.how:
            yield f"Look at what rank {rank} did then{logs}."
        case Phrase.RENDEZVOUS_TIMEOUT if rank is not None and not report.original.how:
            yield f"Look at what rank {rank} did before the ranks were to meet{logs}."
        case Phrase.HUNG_WORKER if rank is not None and scene.frames:
            yield (
                f"Find out why rank {rank} stays there: it may wait for a lock, a file system, or a collective that "
                "others never enter."
            )
        case Phrase.HOST_OUT_OF_MEMORY_KILLED if limit := _LIMIT.search(report.reason):
            yield (
                f"Raise the limit of {limit['size']}, or use less: fewer data-loader workers, a smaller prefetch, a "
                "memory-mapped checkpoint load (mmap, low_cpu_mem_usage), no growing lists of tensors."
            )
        case _:
            pass


def _general(report: ExitReport, scene: FailurePlace) -> Iterator[str]:
    """Yield the sentences of the report's solution, without sentences that repeat a line of the report or give worse
    advice than its facts.
    """
    known = any(_known(report, scene, ""))
    for sentence in sentences_of(one_line(report.solution)):
        if scene.frames and sentence.startswith(_OF_THE_PLACE):
            continue
        if known and (sentence.startswith(_INSTEAD) or report.phrase in _WHOLE):
            continue
        yield sentence


#: Sentences that only advise to look at the place of the failure. They are left out if the report shows the place.
_OF_THE_PLACE = (
    "Start at the last frame of the traceback", "Look at the Python line that called into native code",
    "Look at the stacks in the evidence", "Look at the stack of the rank that differs",
    "Read the exception and the line of your own code",
)  # fmt: skip
#: General sentences that are left out if the report's facts give better advice.
_INSTEAD = (
    "Find the rank that did not join", "Look at what the missing rank did", "Look at the node or rank that is missing",
    "Collect next: ", "Nothing recognised says why", "Ask for more memory",
    "Give the worker more host memory",
)  # fmt: skip
_WHOLE = frozenset({Phrase.UNEXPLAINED})

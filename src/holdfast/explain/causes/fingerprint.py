"""The fingerprint of a failure: one line of text that is equal for equal failures and differs for different ones.

Its parts: phrase | signal or status | exception | place | collective with its sequence number | text | devices. Ranks
and times are left out. The text keeps whole numbers of up to four digits, since they may distinguish two failures ("not
yet 3", "shard 17"). Parts that vary between runs become `#`: addresses, hashes, dates, durations, sizes, fractions,
ports, process ids, ranks, names of temporary files, and longer numbers.
"""

from __future__ import annotations

from holdfast.explain.causes.diagnosis import Diagnosis
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.logs.row_matcher import PROGRESS, Matcher
from holdfast.explain.text import sentences
from holdfast.lazy_pattern import Lazy
from holdfast.model.exit_report import Trigger, signal_name
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import RaisedException

MOST_TEXT = 160
OWN_PORT = Phrase.ADDRESS_IN_USE

_OPERATION = Lazy(r"\bOpType=(\w+)")
_SEQUENCE = Lazy(r"\b(?:SeqNum|seq(?:uence)?(?:[ _]?(?:number|num|id))?)\s*[=:]?\s*(\d+)")
_PORT = Lazy(r"(?i)\bport:?\s*(\d{1,5})\b|\]?:(\d{2,5})\b")
_VOLATILE = Lazy(
    r"0x[0-9a-fA-F]+"
    r"|(?:/tmp|/var/tmp|/dev/shm)/[^\s'\",;:)]+"
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"
    r"|\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?|\b\d{1,2}:\d\d(?::\d\d)?\b"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?"
    r"|(?i:\b(?:pid|process|tid|thread|rank|port|global_rank|local_rank|attempt|worker)[\s_:=#]*)\[?\d+"
    r"|\[(?:\d+|rank\d+)\]"
    r"|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*(?:[kKMGT]i?B\b|bytes\b|%|(?:ms|us|ns|s|sec|secs|seconds?|milliseconds?|min|minutes?"
    r"|h|hours?)\b)"
    r"|\d*\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]\d+|\d{5,}"
)


def fingerprint(diagnosis: Diagnosis, exception: str, matcher: Matcher, reading: Reading | None) -> str:
    """Return the fingerprint of the report that this diagnosis becomes.

    exception: the type of the exception; empty: there is none.
    reading: the reading of the culprit's logs; None: there is no culprit.
    """
    cause = diagnosis.cause
    raised = cause.raised if cause is not None else None
    said = cause.line.text if cause is not None else ""
    collective = _collective(said)
    port = _port(said) if diagnosis.phrase == OWN_PORT else ""
    # Times and queue positions fill the log line of a collective. The collective's name and number identify it.
    text = "" if collective else _text(diagnosis, said, reading, matcher)
    parts = [
        diagnosis.phrase,
        _how(diagnosis),
        exception,
        _place(diagnosis, raised, reading),
        collective,
        f"port {port} {text}" if port else text,
        ",".join(diagnosis.devices),
    ]
    return "|".join(part.replace("|", "/") for part in parts)


def normalized(text: str) -> str:
    """Return the text on one line, shortened, with `#` for the parts that vary between runs."""
    return sentences.shortened(" ".join(_VOLATILE.sub("#", text).split()), MOST_TEXT)


def _how(diagnosis: Diagnosis) -> str:
    """Return the culprit's signal or exit status; empty if holdfast's stop ended it."""
    ended = diagnosis.exit
    if ended is None and diagnosis.original is not None:
        # Several ranks failed in the same way, so none of them is the culprit. Use their common exit.
        code = diagnosis.original.exit_code
        return diagnosis.original.signal or (f"status {code}" if code is not None else "")
    if ended is None or ended.after_stop:
        return ""
    if ended.signal is not None:
        return signal_name(ended.signal)
    return f"status {ended.exit_code}" if ended.exit_code is not None else ""


def _place(diagnosis: Diagnosis, raised: RaisedException | None, reading: Reading | None) -> str:
    """Return the innermost frame in the user's own code; for a crash, the Python line that faulthandler printed."""
    if raised is not None and (frame := raised.frame) is not None:
        return f"{frame[0].rsplit('/', 1)[-1]}:{frame[1]}:{frame[2]}"
    if diagnosis.phrase == Phrase.NATIVE_CRASH and reading is not None:
        return reading.said.crashed_in
    return ""


def _collective(said: str) -> str:
    operation = _OPERATION.search(said)
    if operation is None:
        return ""
    sequence = _SEQUENCE.search(said)
    return f"{operation[1]} {sequence[1]}" if sequence is not None else operation[1]


def _port(said: str) -> str:
    found = _PORT.search(said)
    return (found[1] or found[2]) if found is not None else ""


def _text(diagnosis: Diagnosis, said: str, reading: Reading | None, matcher: Matcher) -> str:
    """Return the text of the failure.

    After a plain exit status it is the worker's last line; after a signal it is empty.
    """
    if diagnosis.trigger is Trigger.HANG:
        return ",".join(normalized(item.text) for item in diagnosis.evidence[:1])
    raised = diagnosis.cause.raised if diagnosis.cause is not None else None
    if raised is not None and raised.message:
        return normalized(raised.message)
    if said:
        return normalized(said)
    own = diagnosis.worker is not None and diagnosis.exit is not None and diagnosis.exit.signal is None
    return normalized(_last_words(reading, matcher)) if own and reading is not None else ""


def _last_words(reading: Reading, matcher: Matcher) -> str:
    """Return the worker's last line; empty if it only reports progress, which varies between runs."""
    said = reading.last_line
    return "" if said is None or matcher.has(PROGRESS, [said.text]) else said.text

"""Writes `runtime.pai.agg.error`: OpenPAI's dynamic exit info, which kubelet, scheduler and portal read.

The file has two landmark lines, and between them one YAML object of exactly ten keys; at most 4096 bytes in all. This
module writes the YAML without a library, one key per line and strings in double quotes, so that the YAML stays valid
after any cut. The least useful text is cut first: the logs of victims, then the log of a rank that was only stopped,
then the culprit's log far from the deciding line. Reason, solution, trigger and the matched line are cut last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.explain.logs.launcher_notes import signal_of
from holdfast.explain.text.secret_masking import mask
from holdfast.lazy_pattern import Lazy
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.exit_report import Blame, EvidenceKind, ExitReport, Trigger, signal_name

#: Limit on the size of the file in bytes, with landmarks and line ends. From a larger file, a kubelet cuts the
#: beginning, and with it the first landmark.
MOST_BYTES = 4096
START = "[PAI_RUNTIME_ERROR_START]"
END = "[PAI_RUNTIME_ERROR_END]"

_LANDMARK = Lazy(r"\[(?=PAI_RUNTIME_ERROR_(?:START|END)\])")
_PLAIN = Lazy(
    r"[^\x20-\x7e\u00a0-\u167f\u1681-\u1fff\u2010-\u2027\u2030-\u205e\u2070-\ud7ff\ue000-\ufefe\uff00-\uffef]"
    r"|[\"\\]"
)
_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}

#: Size to which each of these values is cut, in bytes. The logs fill the rest of the file.
_FLOORS = {"reason": 900, "solution": 600, "caughtException": 300, "matchedUserLogString": 400, "dockerStatus": 120}


def quoted(text: str) -> str:
    """Return the text as a double-quoted YAML scalar on one line.

    A landmark line (`[PAI_RUNTIME_ERROR_END]`) within the text is changed, so that it does not end the file.
    """
    text = _LANDMARK.sub("(", text)
    return '"' + _PLAIN.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _NAMED:
        return _NAMED[char]
    number = ord(char)
    if 0xD800 <= number <= 0xDFFF:
        return "\ufffd"  # a lone surrogate, which YAML cannot contain
    if number >= 0x10000:
        return char if not 0x1FFFE <= number & 0x1FFFF <= 0x1FFFF else f"\\U{number:08X}"
    return f"\\x{number:02X}" if number < 0x100 else f"\\u{number:04X}"


@dataclass(slots=True)
class _Part:
    """A text of the exit file that may be cut to a size in bytes."""

    key: str
    text: str
    #: Which part remains after a cut: the `head`, the `tail`, or both ends (`middle`: the middle is removed).
    keep: str = "head"

    def size(self) -> int:
        return len(quoted(self.text).encode())

    def cut_to(self, limit: int) -> None:
        """Cut the text so that its quoted scalar has at most `limit` bytes."""
        if self.size() <= limit:
            return
        low, high = 0, len(self.text)
        while low < high:
            middle = (low + high + 1) // 2
            if len(quoted(self._cut(middle)).encode()) <= limit:
                low = middle
            else:
                high = middle - 1
        self.text = self._cut(low) if low else ""

    def _cut(self, count: int) -> str:
        if count >= len(self.text):
            return self.text
        if self.keep == "tail":
            return "…" + self.text[len(self.text) - count :]
        if self.keep == "middle":
            half = count // 2
            return self.text[:half] + "…" + self.text[len(self.text) - (count - half) :]
        return self.text[:count] + "…"


def agg_error_file(report: ExitReport, evidence: AttemptEvidence) -> bytes:
    """Return the whole file: at most 4096 bytes of UTF-8, with valid YAML between the landmarks."""
    small = {
        "reason": _Part("reason", report.reason[:8192]),
        "solution": _Part("solution", report.solution[:8192]),
        "caughtException": _Part("caughtException", _exception(report)[:8192], "middle"),
        "matchedUserLogString": _Part("matchedUserLogString", _matched(report)[:8192]),
        "dockerStatus": _Part("dockerStatus", mask(evidence.container[:2048])),
    }
    logs = _logs(report, evidence)
    # The texts in `logs` are in order of usefulness. Each log gets the space that the values and the earlier logs
    # leave.
    for part in (small["dockerStatus"], small["caughtException"], small["matchedUserLogString"]):
        part.cut_to(_FLOORS[part.key])
    small["solution"].cut_to(_FLOORS["solution"])
    small["reason"].cut_to(_FLOORS["reason"])
    room = MOST_BYTES - len(_render(report, small, []))
    kept: list[tuple[str, _Part]] = []
    for key, part in logs:
        overhead = len(f"\n  {key}: ".encode()) if not any(other == key for other, _ in kept) else 0
        budget = room - overhead - 2
        if budget < 40:
            break
        part.cut_to(budget)
        if not part.text:
            break
        kept.append((key, part))
        room = MOST_BYTES - len(_render(report, small, kept))
    data = _render(report, small, kept)
    while len(data) > MOST_BYTES and kept:
        kept.pop()
        data = _render(report, small, kept)
    return data


def refused_exit_file(code: int, reason: str, solution: str) -> bytes:
    """Return the file for a task that holdfast refused before starting any process."""
    parts = {"reason": _Part("reason", mask(reason)[:8192]), "solution": _Part("solution", mask(solution)[:8192])}
    for part in parts.values():
        part.cut_to(MOST_BYTES // 2 - 400)
    nothing = ("originalUserExitCode", "caughtSignal", "caughtException", "matchedUserLogString", "dockerStatus")
    lines = [
        START,
        f"exitcode: {code}",
        f"reason: {quoted(parts['reason'].text)}",
        f"solution: {quoted(parts['solution'].text)}",
        f"trigger: {quoted(Trigger.RUNTIME)}",
        *(f"{key}: null" for key in nothing),
        "errorLogs:",
        *(f"  {key}: null" for key in ("user", "runtime", "diskCleaner")),
        END,
        "",
    ]
    return "\n".join(lines).encode("utf-8", "replace")


def _render(report: ExitReport, small: dict[str, _Part], logs: list[tuple[str, _Part]]) -> bytes:
    def scalar(key: str) -> str:
        part = small[key]
        return quoted(part.text) if part.text else "null"

    merged: dict[str, str] = {}
    for key, part in logs:
        merged[key] = f"{merged[key]}\n{part.text}" if key in merged else part.text
    order = ["user", "runtime", "diskCleaner"]
    keys = order + [key for key in merged if key not in order]
    signal = report.original.signal or _of_shell(report.original.exit_code)
    trigger = report.trigger
    lines = [
        START,
        f"exitcode: {report.code}",
        f"reason: {scalar('reason')}",
        f"solution: {scalar('solution')}",
        f"trigger: {quoted(str(trigger)) if trigger else 'null'}",
        f"originalUserExitCode: {report.original.exit_code if report.original.exit_code is not None else 'null'}",
        f"caughtSignal: {quoted(signal[:40]) if signal else 'null'}",
        f"caughtException: {scalar('caughtException')}",
        f"matchedUserLogString: {scalar('matchedUserLogString')}",
        f"dockerStatus: {scalar('dockerStatus')}",
        "errorLogs:",
        *(f"  {_key(key)}: {quoted(merged[key]) if merged.get(key) else 'null'}" for key in keys),
        END,
        "",
    ]
    return "\n".join(lines).encode("utf-8", "replace")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,40}", name) else quoted(name[:40])


def _of_shell(code: int | None) -> str:
    """Return the name of the signal for a shell's status 128 + N; empty for any other status."""
    number = signal_of(code) if code is not None else None
    return signal_name(number) if number is not None else ""


def _exception(report: ExitReport) -> str:
    """Return the text of the exception with its message, or only its type; empty: no exception."""
    if not report.exception:
        return ""
    told = [
        item
        for item in report.evidence
        if item.kind in (EvidenceKind.EXCEPTION, EvidenceKind.LOG) and report.exception in item.text
    ]
    told.sort(key=lambda item: item.kind != EvidenceKind.EXCEPTION)
    return told[0].text if told else report.exception


def _matched(report: ExitReport) -> str:
    """Return the log line that decided the report's failure class, with the rest of the line's message; empty if no
    line decided."""
    if report.trigger != Trigger.LOG:
        return ""
    text = next(
        (
            item.text
            for item in report.evidence
            if item.kind in (EvidenceKind.LOG, EvidenceKind.EXCEPTION, EvidenceKind.KERNEL)
        ),
        "",
    )
    return re.sub(r"\n  at [^\n]+$", "", text)


def _logs(report: ExitReport, evidence: AttemptEvidence) -> list[tuple[str, _Part]]:
    """Return texts to fill the rest of the file, each with its key, the most useful first.

    The order: the source of the cause, the culprit's log, the other logs.
    """
    parts: list[tuple[str, _Part]] = []
    by_source: dict[str, list[str]] = {}
    for item in evidence.pai_errors[:200]:
        by_source.setdefault(item.source, []).append(mask(item.text[:1500]))
    deciding = (
        {Trigger.DISK_CLEANER: "diskCleaner", Trigger.RUNTIME: "runtime"}.get(Trigger(report.trigger))
        if report.trigger
        else None
    )
    if deciding is not None and deciding not in by_source:
        by_source[deciding] = _own_words(report, evidence)
    ordered = sorted(
        by_source, key=lambda source: (source != deciding, source not in ("runtime", "diskCleaner"), source)
    )
    for source in ordered[:4]:
        text = "\n".join(by_source[source])
        # Components that are not the cause mostly repeat the stop, so each gets only 500 bytes.
        parts.append((source, _Part(source, text[:4096], "tail")))
        if source != deciding:
            parts[-1][1].cut_to(500)
    stopped = report.blame is Blame.OPERATOR or report.trigger in (Trigger.REQUEST, Trigger.DISK_CLEANER)
    culprit = report.first.rank if report.first is not None else None
    own = (
        [worker for worker in evidence.workers if worker.rank == culprit]
        if culprit is not None
        else list(evidence.workers[:1])
    )
    for worker in own[:1]:
        text = _tail(worker, report)
        if text:
            part = _Part("user", text, "tail")
            if stopped:
                part.cut_to(600)
            parts.append(("user", part))
    if not stopped:
        others = [item for item in report.evidence if item.kind == EvidenceKind.COLLATERAL]
        parts += [("user", _Part("user", f"[{item.source}] {item.text[:160]}")) for item in others]
    return parts


def _own_words(report: ExitReport, evidence: AttemptEvidence) -> list[str]:
    """Return holdfast's findings in the line format of `*.pai.error` files."""
    stop = evidence.stop if report.trigger == Trigger.DISK_CLEANER else None
    at = stop.at if stop is not None else evidence.stop_asked_at
    stamp = f"{int(at)} ERROR" if at is not None else "ERROR"
    action = [f'{stamp} ACTION "KILL"'] if stop is not None else []
    return [*action, f'{stamp} REASON "{report.reason}"', f'{stamp} SOLUTION "{report.solution}"']


def _tail(worker: WorkerEvidence, report: ExitReport) -> str:
    """Return the culprit's log around the deciding line, or else its end.

    At most 4096 characters, since the file has no space for more.
    """
    excerpt: LogExcerpt | None = (
        worker.stderr if worker.stderr and worker.stderr.text else (worker.log or worker.stdout)
    )
    text = excerpt.text if excerpt is not None else (worker.exit.last_words if worker.exit is not None else "")
    # Escapes only make a text longer, so more text than this is never needed.
    text = text[-16384:].rstrip()
    matched = next(
        (
            item.text.split("\n")[0]
            for item in report.evidence
            if item.kind in (EvidenceKind.LOG, EvidenceKind.EXCEPTION)
        ),
        "",
    )
    place = text.rfind(matched) if matched else -1
    if place >= 0:
        text = text[max(0, place - 2500) : place + 1500]
    return mask(text[-4096:])

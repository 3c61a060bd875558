"""A user's rows in the schema of OpenPAI's job-exit-spec, with OpenPAI's matching rules.

A row matches if any of its patterns matches. A pattern matches if all its fields match. The first matching row decides.
Unlike OpenPAI, holdfast ignores lines after which the program continued. A pattern that has only an exit code is used
only if no line shows the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.catalogue.exit_codes import code_of
from holdfast.catalogue.exit_rows import ExitRow
from holdfast.explain.causes.diagnosis import Diagnosis
from holdfast.explain.logs.log_reader import Reading
from holdfast.explain.logs.row_matcher import Matcher, refused
from holdfast.model.evidence import AttemptEvidence
from holdfast.model.exit_report import Blame, DecidingLine, Evidence, EvidenceKind, Rerun, Trigger, WorkerExit
from holdfast.model.noun_base import Noun
from holdfast.model.phrases import Phrase
from holdfast.model.worker_reading import Clue, Weight

#: Keys that occur only in rows of OpenPAI's schema, and not in holdfast's rows.
SCHEMA_KEYS = frozenset({"issuer", "causer", "stage", "behavior", "reaction"})


class PaiPattern(Noun, frozen=True, kw_only=True):
    """One `runtimeContainerPatterns` entry. A log matches it only if all of its fields match."""

    exit_code: int | None = None
    user_log: str = ""
    platform_log: str = ""
    #: Fields for which holdfast has no evidence. A pattern with such a field never matches, and lint reports the field.
    unknown: tuple[str, ...] = ()


class PaiRow(Noun, frozen=True, kw_only=True):
    """One row of OpenPAI's spec, converted to a row with holdfast's classification and a code from holdfast's blocks
    of codes."""

    row: ExitRow
    #: OpenPAI's exit code. It is only evidence, since OpenPAI's codes collide with holdfast's blocks of codes.
    number: int
    patterns: tuple[PaiPattern, ...] = ()


_BLAME = {
    "USER_SUCCESS": Blame.WORKLOAD, "USER_STOP": Blame.OPERATOR, "USER_FAILURE": Blame.WORKLOAD,
    "PLATFORM_FAILURE": Blame.PLATFORM, "RESOURCE_ALLOCATION_TIMEOUT": Blame.PLATFORM,
}  # fmt: skip
_BEHAVIOR = {"TRANSIENT": Rerun.NOW, "TRANSIENT_CONFLICT": Rerun.LATER, "PERMANENT": Rerun.NEVER}
_REACTION = {
    "ALWAYS_RETRY": Rerun.NOW, "ALWAYS_BACKOFF_RETRY": Rerun.LATER, "NEVER_RETRY": Rerun.NEVER,
    "RETRY_TO_MAX": Rerun.UNKNOWN,
}  # fmt: skip


def is_pai(row: object) -> bool:
    """Return whether this raw row is in OpenPAI's schema."""
    if not isinstance(row, dict):
        return False
    if "wordings" in row or "blame" in row:
        return False
    return bool(SCHEMA_KEYS & row.keys()) or isinstance(row.get("pattern"), dict)


def convert(raw: dict[str, Any]) -> tuple[PaiRow, list[str]]:
    """Convert a raw row of OpenPAI's schema.

    Return the row with the list of its mistakes. Raises ValueError if the exit code or the failure class is invalid.
    """
    problems: list[str] = []
    code, phrase = raw.get("code"), raw.get("phrase")
    if isinstance(code, bool) or not isinstance(code, int):
        raise ValueError(f"code is {code!r}: an integer was expected")
    if not isinstance(phrase, str) or not phrase.strip():
        raise ValueError(f"phrase is {phrase!r}: a word was expected")
    blame = Blame.HARDWARE if raw.get("causer") == "PAI_HW" else _BLAME.get(str(raw.get("type")), Blame.UNKNOWN)
    rerun = _BEHAVIOR.get(str(raw.get("behavior"))) or _REACTION.get(str(raw.get("reaction"))) or Rerun.UNKNOWN
    solution = raw.get("solution")
    solution = " ".join(map(str, solution)) if isinstance(solution, list) else str(solution or "")
    patterns: list[PaiPattern] = []
    pattern = raw.get("pattern")
    for entry in _entries(pattern, problems):
        exit_code = entry.get("exitCode")
        if exit_code is not None and (isinstance(exit_code, bool) or not isinstance(exit_code, int)):
            problems.append(f"exitCode is {exit_code!r}: an integer was expected")
            continue
        texts = {key: str(entry.get(key) or "") for key in ("userLogRegex", "platformLogRegex")}
        bad = False
        for key, text in texts.items():
            if text and (why := refused(translated(text))):
                problems.append(f"{key} {text!r} is refused: {why}")
                bad = True
        if bad:
            continue
        unknown = tuple(sorted(set(entry) - {"exitCode", "userLogRegex", "platformLogRegex"}))
        patterns.append(
            PaiPattern(
                exit_code=exit_code,
                user_log=texts["userLogRegex"],
                platform_log=texts["platformLogRegex"],
                unknown=unknown,
            )
        )
    reason = str(raw.get("reason") or "").replace("{", "(").replace("}", ")")
    row = ExitRow(
        phrase=phrase,
        code=code_of(blame),
        blame=blame,
        rerun=rerun,
        what=reason or phrase,
        reason=f"{{who}}: {reason}" if reason else "",
        solution=solution.replace("{", "(").replace("}", ")"),
    )
    return PaiRow(row=row, number=code, patterns=tuple(patterns)), problems


def _entries(pattern: object, problems: list[str]) -> list[dict[str, Any]]:
    if pattern is None:
        return []
    if not isinstance(pattern, dict):
        problems.append(f"pattern is {type(pattern).__name__}: an object was expected")
        return []
    found = []
    for kind, entries in pattern.items():
        if kind == "controllerPodPatterns":
            continue  # OpenPAI's controller matches these patterns with pod statuses, not with logs
        if kind != "runtimeContainerPatterns":
            problems.append(f"pattern.{kind} is unknown")
            continue
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict):
                found.append(entry)
            else:
                problems.append(f"a pattern is {type(entry).__name__}: an object was expected")
    return found


def translated(pattern: str) -> str:
    """Return OpenPAI's pattern in re2's syntax.

    OpenPAI's Go patterns have this syntax already, so only remove blanks at the ends.
    """
    return pattern.strip()


def answer(
    rows: Sequence[PaiRow],
    readings: Sequence[Reading],
    ended: WorkerExit | None,
    evidence: AttemptEvidence,
    matcher: Matcher,
    built_in: Diagnosis,
) -> Diagnosis | None:
    """Return the diagnosis for the first matching row of the user; None if no row matches or the built-in rows'
    answer takes precedence.
    """
    event = built_in.cause is not None and built_in.cause.weight is Weight.EVENT
    vague = built_in.phrase in (
        Phrase.KILLED_BY_SIGNAL,
        Phrase.NATIVE_CRASH,
        Phrase.UNEXPLAINED,
        Phrase.USER_EXCEPTION,
        Phrase.PEER_LOST,
    )
    code = _status(ended)
    platform = [item.text for item in evidence.pai_errors]
    for spec in rows:
        for pattern in spec.patterns:
            if pattern.unknown or (pattern.exit_code is not None and pattern.exit_code != code):
                continue
            if pattern.platform_log and not matcher.has(translated(pattern.platform_log), platform):
                continue
            if pattern.user_log:
                if event:
                    continue
                for reading in readings:
                    if found := next((m for m in reading.said.own_matches if m.pattern == pattern.user_log), None):
                        line = found.line
                        cause = Clue(weight=Weight.ENDING, phrase=spec.row.phrase, line=line, rank=line.rank)
                        return _diagnosis(spec, Trigger.LOG, built_in, cause)
            elif pattern.platform_log:
                diagnosis = _diagnosis(spec, Trigger.RUNTIME, built_in, None)
                diagnosis.line = _platform_line(pattern, evidence, matcher)
                return diagnosis
            elif pattern.exit_code is not None and vague:
                by_signal = ended is not None and ended.signal is not None
                return _diagnosis(spec, Trigger.SIGNAL if by_signal else Trigger.EXIT_CODE, built_in, None)
    return None


def _platform_line(pattern: PaiPattern, evidence: AttemptEvidence, matcher: Matcher) -> DecidingLine | None:
    wanted = translated(pattern.platform_log)
    item = next((each for each in evidence.pai_errors if matcher.has(wanted, [each.text])), None)
    return DecidingLine(text=item.text, source=f"{item.source}.pai.error") if item is not None else None


def _diagnosis(spec: PaiRow, trigger: Trigger, built_in: Diagnosis, cause: Clue | None) -> Diagnosis:
    said = f"OpenPAI's exit code {spec.number}: {spec.row.phrase}"
    return Diagnosis(
        spec.row.phrase, spec.row, trigger, cause=cause, worker=built_in.worker, exit=built_in.exit, rank=built_in.rank,
        original=built_in.original, collateral=built_in.collateral, confidence=0.8,
        evidence=[Evidence(kind=EvidenceKind.EXIT_CODE, text=said, source="--exits")],
    )  # fmt: skip


def _status(ended: WorkerExit | None) -> int | None:
    if ended is None:
        return None
    return 128 + ended.signal if ended.signal is not None else ended.exit_code

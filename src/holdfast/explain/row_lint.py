"""Finds mistakes in a user's catalogue rows before a job uses them. Lint only reads the file."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.catalogue.exit_codes import misfits
from holdfast.catalogue.exit_rows import Catalogue, ExitRow, Strength, Wording, circles, load
from holdfast.explain import explain, openpai_rows
from holdfast.explain.logs.row_matcher import Matcher, refused
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence
from holdfast.model.noun_base import Noun
from holdfast.untrusted import Malformed, convert, yaml_value


class Grade(enum.StrEnum):
    #: The catalogue row, or a part of it, has no effect.
    ERROR = "error"
    #: The catalogue row is used, but probably not as its author intended.
    WARNING = "warning"


class RowProblem(Noun, frozen=True, kw_only=True):
    """One mistake in a file of catalogue rows."""

    grade: Grade
    #: The name of the check: bad-file, bad-row, bad-code, empty-solution, bad-regex, matches-nothing,
    #: matches-everything, shadowed, duplicate-phrase, duplicate-id, missing-sample, sample-differs, unknown-key,
    #: advice-alone, unknown-field, unknown-class, circle
    rule: str
    #: The place of the mistake: the failure class of the row, and the id of the pattern.
    where: str
    message: str


#: Lines of healthy jobs. A pattern that matches several of these lines matches too much.
ORDINARY = (
    "step 120 loss 2.3269 (0.02s)",
    "2026-11-20 22:02:33,186 [INFO] trainer: starting, 8 ranks",
    "Loading checkpoint shards: 100%|██████████| 4/4 [00:11<00:00,  2.9s/it]",
    "x",
    "    return fn(*args, **kwargs)",
)


def rows_of(text: str | bytes) -> list[Any]:
    """Return the raw rows of a file: a list in YAML or JSON, or OpenPAI's object with `spec`.

    Raise ValueError for anything else.
    """
    try:
        loaded = yaml_value(text)
    except Malformed as error:
        place = f" at line {error.line}, column {error.column}" if error.line is not None else ""
        raise ValueError(f"not YAML or JSON{place}: {error}") from None
    if isinstance(loaded, dict):
        loaded = next((loaded[key] for key in ("spec", "rows", "exits") if isinstance(loaded.get(key), list)), None)
    if not isinstance(loaded, list):
        raise ValueError("a list of rows was expected, or an object with `spec`")
    return loaded


def usable(text: str | bytes, name: str) -> tuple[list[ExitRow], list[openpai_rows.PaiRow], list[str]]:
    """Return the usable rows of a file, holdfast's and OpenPAI's, and a message for each part that is skipped.

    Raise ValueError if the file is no list of rows.
    """
    ours: list[ExitRow] = []
    theirs: list[openpai_rows.PaiRow] = []
    said: list[str] = []
    for number, raw in enumerate(rows_of(text), 1):
        phrase = raw.get("phrase", "without a phrase") if isinstance(raw, dict) else type(raw).__name__
        label = f"{name}, row {number} ({phrase})"
        if isinstance(raw, dict) and openpai_rows.is_pai(raw):
            try:
                row, problems = openpai_rows.convert(raw)
            except ValueError as error:
                said.append(f"{label} is skipped: {error}")
                continue
            theirs.append(row)
            said += [f"{label}: {problem}; this pattern is skipped" for problem in problems]
            continue
        try:
            own = convert(raw, ExitRow)
        except Malformed as error:
            said.append(f"{label} is skipped: {error}")
            continue
        if wrong := misfits(own, load().by_phrase.get(own.phrase)):
            said.append(f"{label} is skipped: {'; '.join(why for _, why in wrong)}")
            continue
        kept = []
        for wording in own.wordings:
            if why := _unusable(wording):
                said.append(f"{label}, wording {wording.id} is skipped: {why}")
            else:
                kept.append(wording)
        ours.append(msgspec.structs.replace(own, wordings=tuple(kept)))
    return ours, theirs, said


def _unusable(wording: Wording) -> str:
    for part, pattern in (("pattern", wording.pattern), ("beside", wording.beside), ("unless", wording.unless)):
        if pattern and (why := refused(pattern)):
            return f"{part} is refused by re2: {why}"
    if not wording.pattern or _matches_empty(wording.pattern):
        return "its pattern can match an empty line, hence every line"
    return ""


def lint(text: str | bytes, name: str) -> list[RowProblem]:
    """Return all mistakes in a file of rows, holdfast's or OpenPAI's."""
    try:
        raws = rows_of(text)
    except ValueError as error:
        return [RowProblem(grade=Grade.ERROR, rule="bad-file", where=name, message=str(error))]
    problems: list[RowProblem] = []
    phrases: dict[str, int] = {}
    rows: list[ExitRow] = []
    specs: list[tuple[str, openpai_rows.PaiRow]] = []
    for number, raw in enumerate(raws, 1):
        phrase = raw.get("phrase") if isinstance(raw, dict) else None
        where = f"row {number}" + (f" ({phrase})" if phrase else "")
        if not isinstance(raw, dict):
            problems.append(_error("bad-row", where, f"{type(raw).__name__}: an object was expected"))
            continue
        if isinstance(phrase, str):
            if phrase in phrases:
                message = f"the phrase is already row {phrases[phrase]}'s: one row a phrase"
                problems.append(_error("duplicate-phrase", where, message))
            phrases.setdefault(phrase, number)
        if openpai_rows.is_pai(raw):
            problems += _lint_pai(raw, where, specs)
        else:
            problems += _lint_own(raw, where, rows)
    problems += _duplicate_ids(rows)
    problems += _shadowed_pai(specs)
    problems += _misordered(rows)
    problems += _shadowed(rows)
    return problems


def _error(rule: str, where: str, message: str) -> RowProblem:
    return RowProblem(grade=Grade.ERROR, rule=rule, where=where, message=message)


def _warning(rule: str, where: str, message: str) -> RowProblem:
    return RowProblem(grade=Grade.WARNING, rule=rule, where=where, message=message)


def _lint_own(raw: dict[str, Any], where: str, rows: list[ExitRow]) -> Iterable[RowProblem]:
    known = set(ExitRow.__struct_fields__)
    for key in sorted(map(str, set(raw) - known)):
        yield _warning("unknown-key", where, f"`{key}` means nothing here; known are {', '.join(sorted(known))}")
    entries = raw.get("wordings")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            for key in sorted(map(str, set(entry) - set(Wording.__struct_fields__))):
                place = f"{where}, wording {entry.get('id', '?')}"
                yield _warning("unknown-key", place, f"`{key}` means nothing here")
    try:
        row = convert(raw, ExitRow)
    except Malformed as error:
        yield _error("bad-row", where, str(error))
        return
    for rule, why in misfits(row, load().by_phrase.get(row.phrase)):
        yield _error(rule, where, why)
    if not row.wordings:
        yield _warning("missing-sample", where, "no wordings: nothing can ever answer this phrase from a log")
    for pattern in row.fields:
        if why := refused(pattern):
            yield _error("bad-regex", where, f"fields {pattern!r}: {why}")
    rows.append(row)
    for wording in row.wordings:
        yield from _lint_wording(wording, f"{where}, wording {wording.id}")


def _lint_wording(wording: Wording, where: str) -> Iterable[RowProblem]:
    for part, pattern in (("pattern", wording.pattern), ("beside", wording.beside), ("unless", wording.unless)):
        if pattern and (why := refused(pattern)):
            yield _error("bad-regex", where, f"{part} {pattern!r}: {why}")
            return
    yield from _reach(wording.pattern, where)
    if wording.strength is Strength.ADVICE and not wording.beside:
        yield _error("advice-alone", where, "strength advice counts only with `beside`, and there is none")
    if not wording.samples:
        yield _warning("missing-sample", where, "no sample: nothing proves that this pattern matches what it is for")
    matcher = Matcher(Catalogue(()))
    compiled = matcher.compiled(wording.pattern)
    for sample in wording.samples:
        if not any(compiled.search(line) for line in sample.split("\n")):
            shown = sample.split("\n")[-1][:100]
            yield _error("sample-differs", where, f"the pattern matches no line of its sample {shown!r}")


def _reach(pattern: str, where: str, literal: bool = False) -> Iterable[RowProblem]:
    if not pattern or _matches_empty(pattern):
        yield _error("matches-everything", where, f"{pattern!r} can match an empty text, hence every line")
        return
    compiled = Matcher(Catalogue(())).compiled(pattern)
    if sum(compiled.search(line) is not None for line in ORDINARY) >= 2:
        yield _error("matches-everything", where, f"{pattern!r} matches ordinary lines of a healthy log")
        return
    if why := _never(pattern, literal):
        yield _error("matches-nothing", where, f"{pattern!r} can never match: {why}")


def _matches_empty(pattern: str) -> bool:
    matcher = Matcher(Catalogue(()))
    return matcher.compiled(pattern).search("") is not None and not re.search(r"\^\$", pattern)


_FLAGS = re.compile(r"^\(\?[a-zA-Z]+\)")


def _never(pattern: str, literal: bool) -> str:
    """Return why a pattern can match no line; empty if it can match a line.

    literal: also check whether unescaped brackets keep the pattern from matching its own text.
    """
    compiled = Matcher(Catalogue(())).compiled(pattern)
    if compiled.programsize <= 1:
        return "it is made of nothing"
    body = _FLAGS.sub("", pattern)
    if re.search(r"(?<!\\)(?:\\\\)*\\n", body):
        return "it wants a line end, and patterns see one line at a time"
    flags = pattern[: len(pattern) - len(body)]
    if "m" not in flags:
        bare = re.sub(r"\\.", "x", re.sub(r"(?<!\\)\[(?:\\.|[^\]])*\]", "x", body))
        if re.search(r"[^(|?:^]\^", bare):
            return "`^` stands behind something, and only a line's begin matches it"
        if re.search(r"\$[^)|$?*]", bare):
            return "`$` stands before something, and only a line's end matches it"
    if literal and re.search(r"(?<!\\)[(\[]", body) and not re.search(r"(?<!\\)[|*+?]|\(\?", body):
        # A pattern that looks like plain text must match its own text.
        said = re.sub(r"\\(.)", r"\1", body)
        if compiled.search(said) is None:
            return "brackets group here and match no bracket; write them as \\( and \\["
    return ""


def _lint_pai(raw: dict[str, Any], where: str, specs: list[tuple[str, openpai_rows.PaiRow]]) -> Iterable[RowProblem]:
    try:
        row, problems = openpai_rows.convert(raw)
    except ValueError as error:
        yield _error("bad-row", where, str(error))
        return
    for problem in problems:
        yield _error("bad-regex" if "refused" in problem else "bad-row", where, problem)
    specs.append((where, row))
    for number, pattern in enumerate(row.patterns, 1):
        place = f"{where}, pattern {number}"
        if pattern.unknown:
            message = f"{', '.join(pattern.unknown)}: holdfast has no such evidence, so this pattern never matches"
            yield _warning("matches-nothing", place, message)
        for text in (pattern.user_log, pattern.platform_log):
            if text:
                yield from _reach(openpai_rows.translated(text), place, literal=True)
        if not pattern.unknown and pattern.exit_code is None and not pattern.user_log and not pattern.platform_log:
            yield _error("matches-everything", place, "no field is given: it would match every exit")


def _duplicate_ids(rows: Sequence[ExitRow]) -> Iterable[RowProblem]:
    seen: dict[str, str] = {}
    for row in rows:
        for wording in row.wordings:
            if wording.id in seen:
                yield _error("duplicate-id", f"{row.phrase}, wording {wording.id}", f"the id is {seen[wording.id]}'s")
            seen.setdefault(wording.id, row.phrase)


def _misordered(rows: Sequence[ExitRow]) -> Iterable[RowProblem]:
    """Yield a problem for each unknown class in the order of classes, and for each circle in it."""
    catalogue = load().merged(rows, "lint")
    for row in rows:
        for other in (*row.explains, *row.implies, *row.quotes):
            if other not in catalogue.by_phrase:
                yield _warning("unknown-class", row.phrase, f"{other}: no row has this phrase")
    for circle in circles(catalogue.rows):
        message = " comes before ".join((*circle, circle[0]))
        yield _error("circle", circle[0], f"{message}: drop one of these from explains, implies or quotes")


def _shadowed_pai(specs: Sequence[tuple[str, openpai_rows.PaiRow]]) -> Iterable[RowProblem]:
    """Yield a problem for each pattern that can never decide, because an earlier pattern matches all its lines."""
    matcher = Matcher(Catalogue(()))
    earlier: list[tuple[str, openpai_rows.PaiPattern]] = []
    for where, spec in specs:
        for number, pattern in enumerate(spec.patterns, 1):
            if pattern.unknown:
                continue
            words = _plain(pattern.user_log)
            for other, before in earlier:
                if before.exit_code not in (None, pattern.exit_code) or before.platform_log not in (
                    "",
                    pattern.platform_log,
                ):
                    continue
                covers = before.user_log == pattern.user_log if not words else not before.user_log
                if not covers and before.user_log and words:
                    covers = matcher.compiled(openpai_rows.translated(before.user_log)).search(words) is not None
                if covers:
                    yield _warning(
                        "shadowed", f"{where}, pattern {number}", f"{other} comes first and takes what it matches"
                    )
                    break
        earlier += [(where, pattern) for pattern in spec.patterns if not pattern.unknown]


def _plain(pattern: str) -> str:
    """Return a text that the pattern probably matches. The caller tries other patterns on this text."""
    return re.sub(r"\.\*", " ", re.sub(r"\\(.)", r"\1", _FLAGS.sub("", pattern.strip())))


def _shadowed(rows: Sequence[ExitRow]) -> Iterable[RowProblem]:
    """Explain the sample texts of the user's rows, with these rows placed before the built-in rows.

    Yield a problem if another row than the sample's own explains it.
    """
    good = [
        msgspec.structs.replace(row, wordings=tuple(w for w in row.wordings if not _unusable(w)))
        for row in {row.phrase: row for row in reversed(rows)}.values()
    ]
    if not any(row.wordings for row in good):
        return
    catalogue = load().merged(good[::-1], "lint")
    for row in good[::-1]:
        for wording in row.wordings:
            for sample in wording.samples:
                evidence = AttemptEvidence(workers=(WorkerEvidence(log=LogExcerpt(source="sample", text=sample)),))
                report = explain(evidence, catalogue)
                if report.phrase != row.phrase:
                    shown = sample.split("\n")[-1][:100]
                    where = f"{row.phrase}, wording {wording.id}"
                    yield _warning(
                        "shadowed", where, f"its sample {shown!r} is answered {report.phrase} by another row"
                    )
                    break

"""Reads fault codes and rules from files in either format, and warns about every part that it does not use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.decide.faults import ascend_format, holdfast_format
from holdfast.decide.faults.fault_policy import Levels, Policy, PolicyProblem, Rules, policy_of
from holdfast.decide.faults.fault_remedies import level_name
from holdfast.decide.faults.shipped_policy import default_rules, with_catalogue
from holdfast.errors import BadUsage
from holdfast.model.faults import Remedy
from holdfast.model.noun_base import Noun
from holdfast.safe_files import read_given
from holdfast.untrusted import MOST_CONFIG_BYTES, Malformed, json_value

#: In a warning this text follows the name of a file in a wrong format. The default configuration then applies.
UNUSED = " IS NOT USED"
_Read = TypeVar("_Read", Levels, Rules)


class LoadedPolicy(Noun, frozen=True, kw_only=True):
    """The policy (fault codes and rules) that was read from files, and warnings about these files."""

    policy: Policy
    warnings: tuple[str, ...] = ()

    @property
    def unused(self) -> bool:
        """Return whether a file is not used, because its format is wrong."""
        return any(UNUSED in text for text in self.warnings)


class LintedFile(Noun, frozen=True, kw_only=True):
    """The mistakes in one file, for `faults lint`."""

    file: str
    kind: str
    problems: tuple[PolicyProblem, ...]
    codes: int = 0
    rules: int = 0

    @property
    def broken(self) -> bool:
        return any(problem.fatal for problem in self.problems)

    @property
    def loses(self) -> bool:
        """Return whether some part of the file is not used."""
        return any(not problem.harmless for problem in self.problems)


def load_policy(codes_file: str | None, rules_file: str | None, *, dry_run: bool = False) -> LoadedPolicy:
    """Build the policy from the two files and the built-in catalogues. Raises `BadUsage` for an unreadable file.

    A file in a wrong format is not used. Then the default configuration applies, and the first warning says so.
    `codes_file`, `rules_file`: None: the built-in ones. `dry_run`: only report the effects of the rules.
    """
    warnings: list[str] = []
    levels, rules = with_catalogue(Levels(), of_seed=False), default_rules()
    one = codes_file if rules_file is None else rules_file if codes_file is None else None
    if codes_file is not None or (one is not None and _is_own(one)):
        name = codes_file or rules_file or ""
        data = _read(name)
        if codes_file is not None or holdfast_format.has_codes(data):
            levels = _taken(_levels_of(name, data), levels, name, warnings)
    if rules_file is not None or (one is not None and _is_own(one)):
        name = rules_file or codes_file or ""
        data = _read(name)
        if rules_file is not None or holdfast_format.has_rules(data):
            read = _rules_of(name, data)
            rules = _taken(read, rules, name, warnings)
    policy = policy_of(levels, rules)
    unused = tuple(text.partition(UNUSED)[0] for text in warnings)
    if any(name is not None and not _is_own(name) and name not in unused for name in (codes_file, rules_file)):
        policy = msgspec.structs.replace(policy, seed_names=True)
    return LoadedPolicy(policy=_all_dry(policy) if dry_run else policy, warnings=tuple(dict.fromkeys(warnings)))


def lint(files: Sequence[str]) -> tuple[LintedFile, ...]:
    """Return for every file the entries that holdfast would not use, with the reasons. A rule is compared with the
    levels (required remedies) of the codes in all these files.
    """
    read = [_lint_one(name) for name in files]
    levels = with_catalogue(Levels(), of_seed=False).levels
    for _, listed, _ in read:
        levels = {**levels, **listed.levels}
    return tuple(
        msgspec.structs.replace(finding, problems=(*finding.problems, *_without_effect(rules, levels)))
        for finding, _, rules in read
    )


def _without_effect(rules: Rules, levels: dict[str, Remedy]) -> Iterator[PolicyProblem]:
    """Yield the duration rules without an effect on lasting faults: the level of their code is at least as severe."""
    for code, rule in rules.duration.items():
        own = levels.get(code)
        if own is not None and Remedy.NONE < rule.remedy <= own:
            spelled = rules.spelled.get(code, code)
            yield PolicyProblem(
                where=rule.entry,
                what=f"{spelled}: {rule.remedy.name} ({level_name(rule.remedy)}) is not above its own level "
                f"{own.name} ({level_name(own)}): it changes nothing while the fault lasts",
                harmless=True,
            )


def _lint_one(name: str) -> tuple[LintedFile, Levels, Rules]:
    data = _read(name)
    if _is_own(name):
        levels, rules = holdfast_format.read_levels(data), holdfast_format.read_rules(data)
        problems = list(dict.fromkeys((*levels.problems, *rules.problems)))
        return _finding(name, "holdfast", problems, levels, rules), levels, rules
    document = _json(data)
    keys = {key.lower() for key in document} if isinstance(document, dict) else set()
    if keys & {section.lower() for section in ascend_format.SECTIONS}:
        rules = ascend_format.read_rules(data)
        return _finding(name, "faultCustomization.json", list(rules.problems), Levels(), rules), Levels(), rules
    levels = ascend_format.read_codes(data)
    return _finding(name, "faultCode.json", list(levels.problems), levels, Rules()), levels, Rules()


def _finding(name: str, kind: str, problems: list[PolicyProblem], levels: Levels, rules: Rules) -> LintedFile:
    return LintedFile(
        file=name,
        kind=kind,
        problems=tuple(problems),
        codes=len(levels.levels),
        rules=len(rules.frequency) + len(rules.duration),
    )


def _read(name: str) -> bytes:
    try:
        return read_given(name, MOST_CONFIG_BYTES)
    except OSError as error:
        raise BadUsage(
            f"{name}: {(error.strerror or str(error)).lower()}; a file with fault codes or rules was expected",
            hint="holdfast faults lint FILE",
        ) from error


def _is_own(name: str) -> bool:
    return Path(name).suffix.lower() in (".yaml", ".yml")


def _json(data: bytes) -> Any:
    try:
        return json_value(data)
    except Malformed:
        return None


def _levels_of(name: str, data: bytes) -> Levels:
    if _is_own(name):
        read = holdfast_format.read_levels(data)
        return read if _fatal(read) else with_catalogue(read, of_seed=False)
    read = ascend_format.read_codes(data)
    return read if _fatal(read) else with_catalogue(read, of_seed=True)


def _rules_of(name: str, data: bytes) -> Rules:
    return holdfast_format.read_rules(data) if _is_own(name) else ascend_format.read_rules(data)


def _fatal(read: Levels | Rules) -> PolicyProblem | None:
    return next((problem for problem in read.problems if problem.fatal), None)


def _taken(read: _Read, default: _Read, name: str, warnings: list[str]) -> _Read:
    fatal = _fatal(read)
    if fatal is not None:
        warnings.insert(0, f"{name}{UNUSED}, the default configuration applies: {fatal}")
        return default
    warnings.extend(f"{name}: {problem}" for problem in read.problems if not problem.harmless)
    return read


def _all_dry(policy: Policy) -> Policy:
    return msgspec.structs.replace(
        policy,
        frequency={code: msgspec.structs.replace(rule, dry_run=True) for code, rule in policy.frequency.items()},
        duration={code: msgspec.structs.replace(rule, dry_run=True) for code, rule in policy.duration.items()},
    )

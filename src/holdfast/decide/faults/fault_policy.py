"""The rules in force: levels of codes, frequency and duration rules, and the graceful-tolerance times.

Values have the same ranges as in Ascend's fault configuration. The engine computes in whole milliseconds, so that it
compares a time with a limit exactly.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.catalogue.fault_codes import LINK_DOWN, all_codes, canonical
from holdfast.decide.faults.fault_remedies import LEVEL_NAMES, LINK_REMEDIES
from holdfast.model.faults import Remedy
from holdfast.model.noun_base import Noun

#: The value of `ReleaseTimeWindow` that means: only a person ends the escalation.
NEVER_S = 4_294_967_296

WINDOW_S = (60, 864_000)
TIMES = (1, 100)
RELEASE_S = (60, NEVER_S)
FAULT_S = (0, 600)
RECOVER_S = (0, 86_400)
SAVE_S = (5, 90)
RESET_S = (60, 180)
HEAL_S = (1, 30)
LINK_FAULT_S = 20
LINK_RECOVER_S = 60


class FrequencyRule(Noun, frozen=True, kw_only=True):
    """A rule that escalates to `remedy` when a code occurs `times` times within `window_s` seconds.

    The escalation ends when a user releases the device, or after `release_s` seconds without the code.
    """

    window_s: int
    times: int
    remedy: Remedy
    release_s: int = NEVER_S
    dry_run: bool = False
    #: The rule's place in its file, such as `frequency[2] (line 9)`. The circuit breaker limits how many devices each
    #: place may exclude.
    entry: str = ""

    @property
    def window_ms(self) -> int:
        return self.window_s * 1000

    @property
    def release_ms(self) -> int | None:
        return None if self.release_s >= NEVER_S else self.release_s * 1000


class DurationRule(Noun, frozen=True, kw_only=True):
    """A rule that demands `remedy` when a fault has lasted longer than `fault_s` seconds.

    The remedy ends when the fault has been gone for `recover_s` seconds.
    """

    fault_s: int
    recover_s: int
    remedy: Remedy
    dry_run: bool = False
    entry: str = ""

    @property
    def fault_ms(self) -> int:
        return self.fault_s * 1000

    @property
    def recover_ms(self) -> int:
        return self.recover_s * 1000


class GraceTimes(Noun, frozen=True, kw_only=True):
    """The time limits of graceful tolerance, in seconds.

    `save_s`: for workers to save and exit. `reset_s`: for a reset. `heal_s`: for a fault to end without a reset.
    """

    save_s: int = 30
    reset_s: int = 150
    heal_s: int = 15


class Policy(Noun, frozen=True, kw_only=True):
    """All rules that judge faults. Codes are canonical; `spelled` keeps the spelling of the user's file."""

    levels: dict[str, Remedy] = {}
    frequency: dict[str, FrequencyRule] = {}
    duration: dict[str, DurationRule] = {}
    grace: GraceTimes = GraceTimes()
    spelled: dict[str, str] = {}
    #: Whether messages use Ascend's names of levels, because a file of the user does.
    seed_names: bool = False

    def spell(self, code: str) -> str:
        """Return a canonical code as the user's file spells it."""
        return self.spelled.get(code, code)

    def flat(self) -> dict[str, int | str]:
        """Return all values of the rules, each with its name in Ascend's files: `FaultFrequency.80E18005.Times` → 3."""
        out: dict[str, int | str] = {
            "WaitProcessReadCMTime": self.grace.save_s,
            "WaitDeviceResetTime": self.grace.reset_s,
            "WaitFaultSelfHealingTime": self.grace.heal_s,
        }
        for code, rule in self.frequency.items():
            at = f"FaultFrequency.{self.spell(code)}."
            out[at + "TimeWindow"] = rule.window_s
            out[at + "Times"] = rule.times
            out[at + "FaultHandling"] = LEVEL_NAMES[rule.remedy]
            out[at + "ReleaseTimeWindow"] = rule.release_s
        for code, lasting in self.duration.items():
            at = f"FaultDuration.{self.spell(code)}."
            out[at + "FaultTimeout"] = lasting.fault_s
            out[at + "RecoverTimeout"] = lasting.recover_s
            out[at + "FaultHandling"] = LEVEL_NAMES[lasting.remedy]
        return out


class PolicyProblem(Noun, frozen=True, kw_only=True):
    """An ignored part of a file, and why it is ignored. `fatal`: whether the whole file is ignored because of it.
    `harmless`: whether ignoring the part changes nothing.
    """

    #: The place of the ignored part in the file: `FaultFrequency[2]`, `codes.79`; empty: the file as a whole.
    where: str
    what: str
    fatal: bool = False
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class Levels(Noun, frozen=True, kw_only=True):
    """The result of reading a code list: levels by canonical code, and the ignored parts."""

    levels: dict[str, Remedy] = {}
    spelled: dict[str, str] = {}
    problems: tuple[PolicyProblem, ...] = ()


class Rules(Noun, frozen=True, kw_only=True):
    """The result of reading a rule file: its rules, and the ignored parts."""

    frequency: dict[str, FrequencyRule] = {}
    duration: dict[str, DurationRule] = {}
    grace: GraceTimes = GraceTimes()
    spelled: dict[str, str] = {}
    problems: tuple[PolicyProblem, ...] = ()

    @property
    def broken(self) -> PolicyProblem | None:
        return next((problem for problem in self.problems if problem.fatal), None)


class Spelling:
    """Remembers the spelling of each code in the files. The first spelling counts."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def take(self, code: str) -> str:
        key = canonical(code)
        self.seen.setdefault(key, code.strip().upper().removeprefix("0X"))
        return key


class RulesReader:
    """The rules of one file while the file is read. Of several valid rules of one kind for a code, the first counts."""

    def __init__(self, problems: Iterable[PolicyProblem] = ()) -> None:
        """`problems`: the ignored parts that are known already."""
        self.frequency: dict[str, FrequencyRule] = {}
        self.duration: dict[str, DurationRule] = {}
        self.problems = list(problems)
        self.spelling = Spelling()

    def skip(self, where: str, what: str) -> None:
        """Record that a part of the file is ignored. `where`: the place in the file; `what`: the reason."""
        self.problems.append(PolicyProblem(where=where, what=what))

    def add_duration(
        self,
        code: str,
        remedy: Remedy,
        *,
        fault_s: int | None,
        recover_s: int | None,
        entry: str,
        dry_run: bool = False,
    ) -> None:
        """Add a duration rule with these values (see `DurationRule`).

        If a time is None, it gets its default; the link fault has different defaults.
        """
        link = code == LINK_DOWN
        self.duration[code] = DurationRule(
            fault_s=(LINK_FAULT_S if link else 0) if fault_s is None else fault_s,
            recover_s=(LINK_RECOVER_S if link else 0) if recover_s is None else recover_s,
            remedy=remedy,
            dry_run=dry_run,
            entry=entry,
        )

    def finish(self, grace: GraceTimes) -> Rules:
        """Return the rules that were read, with the times of graceful tolerance."""
        return Rules(
            frequency=self.frequency,
            duration=self.duration,
            grace=grace,
            spelled=self.spelling.seen,
            problems=tuple(self.problems),
        )


def policy_of(levels: Levels, rules: Rules) -> Policy:
    """Combine the levels of a code list and the rules of a rule file into one policy."""
    return Policy(
        levels=levels.levels,
        frequency=rules.frequency,
        duration=rules.duration,
        grace=rules.grace,
        spelled={**rules.spelled, **levels.spelled},
    )


def allowed_remedy(code: str, remedy: Remedy, *, hold: bool) -> Remedy:
    """Return `remedy`, or NONE if no rule for this code may demand it.

    A rule for the link fault may only demand NONE, AVOID or ISOLATE, and HOLD if `hold` is set.
    """
    if code != LINK_DOWN or remedy in LINK_REMEDIES or (hold and remedy is Remedy.HOLD):
        return remedy
    return Remedy.NONE


def catalogue_levels(without: frozenset[str] = frozenset()) -> Levels:
    """Return the built-in levels of fault codes, of all vendors except those in `without`."""
    kept = {key: row for key, row in all_codes().items() if row.vendor not in without and row.remedy is not None}
    return Levels(
        levels={key: row.remedy for key, row in kept.items() if row.remedy is not None},
        spelled={key: row.code for key, row in kept.items() if row.code != key},
    )


def merged(base: Levels, over: Levels) -> Levels:
    """Merge two code lists. An entry in `over` replaces the entry for the same code in `base`."""
    return Levels(
        levels={**base.levels, **over.levels}, spelled={**base.spelled, **over.spelled}, problems=over.problems
    )

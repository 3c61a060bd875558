"""The ends of the sidecars of an attempt: hooks, daemons, the sshd for debugging."""

from __future__ import annotations

import enum

from holdfast.model.exit_report import Outcome, signal_name
from holdfast.model.noun_base import Noun
from holdfast.model.runtime_plan import Hook, HookMoment, RuntimePlan


class SideKind(enum.StrEnum):
    """The kind of a process beside the workers."""

    HOOK = "hook"
    DAEMON = "daemon"
    SSHD = "sshd"


class SideFailure(Noun, frozen=True, kw_only=True):
    """The failure of a sidecar that makes the attempt fail."""

    kind: SideKind
    name: str
    node: str = ""
    #: When the failed hook was due; None: the process is no hook.
    when: HookMoment | None = None
    exit_code: int | None = None
    signal: int | None = None
    #: The time limit in seconds after which the process was killed; None: it ended by itself.
    limit_s: float | None = None
    #: Why the process could not be started, or did not become ready; empty: it ran.
    trouble: str = ""
    #: How often the process was started in this attempt.
    starts: int = 1
    #: The end of the process's output, decoded, at most 2 KiB.
    last_words: str = ""
    #: The path of the process's log on its node.
    log: str = ""

    @property
    def title(self) -> str:
        """The kind and name of the process: `hook prepare-data (taskStarts)`, `daemon shipper`, `sshd`."""
        if self.kind is SideKind.SSHD:
            return "sshd"
        when = f" ({self.when})" if self.when is not None else ""
        return f"{self.kind} {self.name}{when}"

    @property
    def fate(self) -> str:
        """How the process ended, in words that end a sentence: `ended with exit status 3`."""
        if self.trouble:
            return f"could not be started: {self.trouble}"
        if self.limit_s is not None:
            return f"did not end within {self.limit_s:g} s and was killed"
        if self.signal is not None:
            end = f"was ended by {signal_name(self.signal)}"
        else:
            end = f"ended with exit status {self.exit_code}"
        return f"{end}; it was started {self.starts} times" if self.starts > 1 else end

    @property
    def last_line(self) -> str:
        """The last line of the process's output that is not blank."""
        lines = [line.strip() for line in self.last_words.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    @property
    def sentence(self) -> str:
        """The failure in words: `hook fetch (taskStarts) on n2 ended with exit status 3: no such bucket`."""
        where = f" on {self.node}" if self.node else ""
        last = f": {self.last_line}" if self.last_line else ""
        return f"{self.title}{where} {self.fate}{last}"


class AttemptEnd(Noun, frozen=True, kw_only=True):
    """An attempt's end, for the hooks after it."""

    outcome: Outcome
    phrase: str
    code: int
    reason: str

    @property
    def moments(self) -> frozenset[HookMoment]:
        """The kinds of hooks that run after such an end of an attempt."""
        mine = HookMoment.SUCCEEDED if self.outcome is Outcome.SUCCEEDED else HookMoment.FAILED
        return frozenset({mine, HookMoment.ENDED})


def named_hooks(plan: RuntimePlan) -> tuple[tuple[str, Hook], ...]:
    """Return each hook of the plan with its name. A hook without a name gets its moment and number: `taskStarts-1`."""
    return tuple((hook.name or f"{hook.when}-{place}", hook) for place, hook in enumerate(plan.hooks, 1))


def hooks_before_s(plan: RuntimePlan) -> float:
    """Return how many seconds the hooks before an attempt's workers may take in total."""
    return sum(hook.limit_s for hook in plan.hooks if hook.when is HookMoment.BEFORE)


def hooks_after_s(plan: RuntimePlan) -> float:
    """Return how many seconds the hooks after an attempt's workers may take in total; 0: there are none."""
    after = [(hook.when, hook.limit_s) for hook in plan.hooks if hook.when is not HookMoment.BEFORE]
    always = sum(limit_s for when, limit_s in after if when is HookMoment.ENDED)
    return always + max(
        (sum(limit_s for when, limit_s in after if when is one) for one in (HookMoment.SUCCEEDED, HookMoment.FAILED)),
        default=0.0,
    )

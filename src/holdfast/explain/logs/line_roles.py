"""What a sentence of a log does: state a cause, warn, advise, describe a plan, quote, or announce a stop.

A catalogue pattern finds words. Whether the words are a cause depends on what the sentence around them does, and on what
came after it. `ROLES` is the table of the sentences' forms; `may_cause` says what each role needs to be a cause.
"""

# ruff: noqa: E501 - one form of a sentence a line
from __future__ import annotations

import enum

from holdfast.lazy_pattern import Lazy


class Role(enum.StrEnum):
    #: The sentence states that something failed.
    STATES = "states"
    #: It warns, and the program goes on, as far as the sentence says.
    WARNS = "warns"
    #: It gives advice for a case that need not have happened.
    ADVISES = "advises"
    #: It describes what will or would be done.
    PLANS = "plans"
    #: It repeats another program's text, a help text or source code.
    QUOTES = "quotes"
    #: It is a step of the ordinary course of the program: an INFO or DEBUG line.
    INFORMS = "informs"


#: The end of one sentence before the next one.
_NEXT = Lazy(r"[.!?]\s+(?=[A-Z`'\"(\[])|;\s+")

#: The forms of sentences, the first that fits counts.
ROLES: tuple[tuple[Role, Lazy], ...] = (
    (Role.QUOTES, Lazy(r"^\s*(?:\+{1,3} )?(?:echo|printf|print\(|log(?:ger|ging)?\.\w+\(|>>> )")),
    (Role.QUOTES, Lazy(r"^\s*[\"'`][^\"'`]{3,200}[\"'`]\s*(?:-+>|=+>|→|means\b)")),
    (Role.ADVISES, Lazy(r"(?i)^\W{0,6}(?:if (?:you|your|this|it|there|any|out-of-memory|an? \w+|the (?:error|problem|issue|process|job|program|memory|server))\b|when you|in case\b|should you|to (?:avoid|fix|disable|suppress|silence|prevent|resolve|reduce|enable|allow)\b|please (?:consider|try|make sure|check|refer|see|set|use|note)|consider \w+ing|try (?:to |\w+ing)|you (?:can|may|might|should|could|will need|need to|are encouraged|probably want)|make sure|be sure|hint:|tip:|note that|for (?:more|further) (?:info|details|debugging)|we recommend|it is (?:recommended|advised|possible to))")),
    (Role.ADVISES, Lazy(r"(?i)\b(?:please )?consider \w+ing\b|\bis (?:strongly )?recommended\b|\bwe (?:strongly )?recommend\b|\byou may be able to\b|\bmay want to\b|\bcan be (?:avoided|disabled|silenced|suppressed|fixed) by\b")),
    (Role.PLANS, Lazy(r"(?i)\b(?:will|would|shall) (?:then |also |now |be |not be |automatically )*(?:killed|terminated|restarted|retried|stopped|aborted|halved|skipped|ignored|saved|retry|restart|abort|exit|kill|terminate|time ?out|wait|raise|fall back|resume)\b|^\W{0,6}(?:on|upon|in case of|whenever|after) [^.;]{3,80}\b(?:will|is going to|shall) ")),
    (Role.WARNS, Lazy(r"(?i)^\W{0,4}(?:(?:[\w./<>-]+:\d+: )?(?:\w*Warning|WARN(?:ING)?)\b)|\b(?:falling back|fall(?:s|ing)? back to|skipping|ignoring|continuing|proceeding|carrying on|retrying|will retry|trying again|using \S{1,40} instead|disabling)\b")),
)  # fmt: skip
_MOST = 2000


def role_of(text: str, start: int = 0, level: str = "") -> Role:
    """Return the role of the sentence of this line in which a match begins at the character `start`."""
    sentence = _sentence(text[:_MOST], start)
    for role, form in ROLES:
        if form.search(sentence):
            return role
    return {"D": Role.INFORMS, "I": Role.INFORMS, "W": Role.WARNS}.get(level, Role.STATES)


def _sentence(text: str, start: int) -> str:
    begin, end = 0, len(text)
    for match in _NEXT.finditer(text):
        if match.end() <= start:
            begin = match.end()
        elif match.start() >= start:
            end = match.end()
            break
    return text[begin:end]


def may_cause(role: Role, *, followed: bool) -> bool:
    """Return whether a line of this role can be a cause. `followed`: the job went on after the line."""
    match role:
        case Role.ADVISES | Role.PLANS | Role.QUOTES:
            return False
        case Role.WARNS | Role.INFORMS:
            return not followed
        case Role.STATES:
            return True

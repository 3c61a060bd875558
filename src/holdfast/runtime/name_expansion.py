"""Expands names in a user's command or address: `$PAI_JOB_NAME`, `${HOLDFAST_HOME}`, `<% $parameters.lr %>`.

holdfast expands only the names `PAI_*` and `HOLDFAST_*`. An unknown one is an error with line and column. Any other
`$NAME` stays as it is. In a shell script the names stay too: the shell expands them from its environment, so that no
value is parsed as shell syntax. In other texts values are inserted without escapes. This module does no input or
output.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun
from holdfast.runtime.shell_quoting import Quote, quotes_at

if TYPE_CHECKING:
    import re

#: Groups whose name may follow `<% $`.
GROUPS = ("parameters", "secrets", "script", "data", "output", "dockerimage")
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"})
MOST_TOLD = 5
_SECRET = "HOLDFAST_SECRET_"
_PARAMETER = "HOLDFAST_PARAMETER_"
_TOKEN = Lazy(
    r"<%\s*\$(?P<group>[A-Za-z]\w*)\.(?P<key>[^\s%]+)\s*%>"
    r"|(?P<slashes>\\*)\$(?:\{(?P<braced>(?:PAI|HOLDFAST)_[\w.-]*)\}|(?P<plain>(?:PAI|HOLDFAST)_[\w.-]*))"
)
_IDENTIFIER = Lazy(r"\w*")


class ExpansionTarget(enum.Enum):
    """The reader of a text. It decides how names in the text are expanded."""

    SHELL = "a shell"
    #: A program that is no shell. The text is a word of its command line, or another interpreter's script, so it must
    #: not contain a secret.
    PROGRAM = "a program"
    #: holdfast: the text is an address or the value of a variable. No command line shows it, so it may contain a
    #: secret.
    HOLDFAST = "holdfast"


class NameValues(Noun, frozen=True, kw_only=True):
    """The values of all names that can be expanded."""

    #: Values of the variables `PAI_*` and `HOLDFAST_*`.
    values: Mapping[str, str] = {}
    #: Names of variables that get their values when a worker starts. They stay unexpanded until then.
    later: Collection[str] = ()
    parameters: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    #: Values of other references, such as `script.uri` and `data.uri[0]`.
    others: Mapping[str, str] = {}

    @classmethod
    def of(cls, environment: Mapping[str, str], parameters: Mapping[str, str] | None = None) -> NameValues:
        """Return the values in a process with this environment.

        A secret is the value of its variable (see `secret_variable`).
        """
        ours = {name: value for name, value in environment.items() if name.startswith(("PAI_", "HOLDFAST_"))}
        given = {key.removeprefix(_PARAMETER): value for key, value in ours.items() if key.startswith(_PARAMETER)}
        secrets = {key.removeprefix(_SECRET): value for key, value in ours.items() if key.startswith(_SECRET)}
        return cls(values=ours, parameters={**given, **(parameters or {})}, secrets=secrets)


def secret_variable(name: str) -> str:
    """Return the name of the environment variable with the secret `name`."""
    return _SECRET + _safe(name)


def parameters_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters in an environment. `HOLDFAST_PARAMETER_lr=0.1` is the parameter `lr`."""
    return {key.removeprefix(_PARAMETER): value for key, value in environment.items() if key.startswith(_PARAMETER)}


def has_names(text: str) -> bool:
    """Whether the text may contain a name to expand. Most commands contain none."""
    return "<%" in text or "$PAI_" in text or "$HOLDFAST_" in text or "${PAI_" in text or "${HOLDFAST_" in text


def expand(text: str, known: NameValues, where: str, reader: ExpansionTarget) -> str:
    """Return `text` with its names expanded. Raises `BadUsage` with `where`, line and column of each unknown name.

    `known`: the values of names. `where`: describes the text in messages, such as a key of the job file. `reader`: who
    reads the text.
    """
    if not has_names(text):
        return text
    return _Expansion(text, known, where, reader).result()


def expand_command(words: Sequence[str], known: NameValues, where: str) -> tuple[str, ...]:
    """Expand the words of a command line. The word after `sh -c` is expanded for a shell."""
    return tuple(
        expand(word, known, where if len(words) < 2 else f"{where}, word {at + 1}", _reader(words, at))
        for at, word in enumerate(words)
    )


def reader_of_script(command: Sequence[str]) -> ExpansionTarget:
    """Return the reader of a script that this command runs. `command`: such as `/bin/sh -e` or `/usr/bin/env
    python3`.
    """
    words = [piece for word in command for piece in word.split()]
    return (
        ExpansionTarget.SHELL if any(word.rpartition("/")[2] in SHELLS for word in words) else ExpansionTarget.PROGRAM
    )


def _reader(words: Sequence[str], at: int) -> ExpansionTarget:
    before = words[at - 1] if at else ""
    asked = before.startswith("-") and not before.startswith("--") and before.endswith("c")
    shell = any(word.rpartition("/")[2] in SHELLS for word in words[: max(at - 1, 0)])
    return ExpansionTarget.SHELL if asked and shell else ExpansionTarget.PROGRAM


def _safe(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)


class _Expansion:
    """The expansion of one text.

    `text`: the text with names.
    `known`: the values of names.
    `where`: describes the text in messages.
    `reader`: who reads the text.
    """

    def __init__(self, text: str, known: NameValues, where: str, reader: ExpansionTarget) -> None:
        self._text, self._known, self._where, self._reader = text, known, where, reader
        self._wrong: list[str] = []

    def result(self) -> str:
        text, pieces, end = self._text, [], 0
        tokens = list(_TOKEN.finditer(text))
        shell = self._reader is ExpansionTarget.SHELL
        quotes = quotes_at(text, [token.start() for token in tokens]) if shell else [Quote.PLAIN] * len(tokens)
        for token, quote in zip(tokens, quotes, strict=True):
            said = token["group"]
            found = (
                self._reference(token.start(), said, token["key"], quote)
                if said
                else self._variable(token.start("slashes"), token, quote)
            )
            if found is None:
                continue
            value, stop = found
            pieces += [text[end : token.start()], value]
            end = token.end() if stop is None else stop
        if self._wrong:
            told = self._wrong[:MOST_TOLD]
            more = len(self._wrong) - len(told)
            raise BadUsage("; ".join(told) + (f"; and {more} more" if more else ""), hint="env | grep -E '^PAI_'")
        return "".join([*pieces, text[end:]])

    def _variable(self, at: int, token: re.Match[str], quote: Quote) -> tuple[str, int | None] | None:
        """Expand `$PAI_X` at position `at`. Return the value and the position after the name.

        Return None if the text stays as it is.
        """
        slashes, braced, plain = token["slashes"], token["braced"], token["plain"]
        if len(slashes) % 2 or quote in (Quote.SINGLE, Quote.LITERAL, Quote.ANSI, Quote.COMMENT):
            return None
        start = at + len(slashes)
        written = braced or plain
        name = self._longest(written)
        word = _IDENTIFIER.match(written)
        assert word is not None
        identifier = word[0]
        if name is None or (braced and name != braced):
            if self._reader is ExpansionTarget.SHELL and (
                self._set_here(identifier) or (braced and identifier != written)
            ):
                return None  # the script sets the name itself, or uses a shell expression such as ${PAI_X-none}
            self._unknown(
                start, f"${identifier}" if plain else f"${{{braced}}}", [*self._known.values, *self._known.later]
            )
            return None
        if name not in self._known.values or (self._reader is ExpansionTarget.SHELL and name == identifier):
            return None
        stop = None if braced else start + 1 + len(name)
        return slashes + self._known.values[name], stop

    def _longest(self, written: str) -> str | None:
        """Return the longest known name at the beginning of `written`, cut at a dot or hyphen, as in `my-ps_0.log`."""
        ends = [len(written)] + [at for at in range(len(written) - 1, 0, -1) if written[at] in ".-"]
        for end in ends:
            if written[:end] in self._known.values or written[:end] in self._known.later:
                return written[:end]
        return None

    def _set_here(self, name: str) -> bool:
        """Whether the script itself sets the name: `PAI_X=1`, `read PAI_X`, `for PAI_X in`."""
        at = self._text.find(name)
        while at >= 0:
            before, after = self._text[at - 1 : at], self._text[at + len(name) : at + len(name) + 1]
            if not (before == "$" or before == "{" or _is_word(before) or _is_word(after)):
                return True
            at = self._text.find(name, at + 1)
        return False

    def _reference(self, at: int, group: str, key: str, quote: Quote) -> tuple[str, int | None] | None:
        """Return the value of `<% $group.key %>` at position `at`. Return None if the text stays as it is."""
        if quote is Quote.COMMENT:
            return None
        known = self._known
        if group == "secrets":
            return self._secret(at, key, quote)
        table: Mapping[str, str]
        if group == "parameters":
            table = known.parameters
        elif group in GROUPS:
            table = {
                name.partition(".")[2]: value for name, value in known.others.items() if name.startswith(f"{group}.")
            }
        else:
            near = _nearest(group, GROUPS)
            if near:  # if no group name is similar, the text is another tool's template
                self._note(at, f"there is no `${group}`; did you mean `${near}`?")
            return None
        if key not in table:
            self._unknown(at, f"${group}.{key}", [f"${group}.{name}" for name in table])
            return None
        return table[key], None

    def _secret(self, at: int, key: str, quote: Quote) -> tuple[str, int | None] | None:
        """Return the value of the secret `key`.

        If other users can read the text, return a reference to the secret's variable instead.
        """
        variable = secret_variable(key)
        if _safe(key) not in self._known.secrets and key not in self._known.secrets:
            self._unknown(at, f"$secrets.{key}", [f"$secrets.{name}" for name in self._known.secrets])
            return None
        if self._reader is ExpansionTarget.HOLDFAST:
            return self._known.secrets.get(key, "") or self._known.secrets.get(_safe(key), ""), None
        match quote if self._reader is ExpansionTarget.SHELL else Quote.LITERAL:
            case Quote.PLAIN:
                return f'"${{{variable}}}"', None
            case Quote.DOUBLE | Quote.DOCUMENT:
                return f"${{{variable}}}", None
            case Quote.SINGLE:
                return f"'\"${{{variable}}}\"'", None
        self._note(at, f"a secret has no place here, for it could be read by others: the worker has it as ${variable}")
        return None

    def _unknown(self, at: int, name: str, known: Collection[str]) -> None:
        plain = name.strip("${}")
        near = _nearest(plain, [one.lstrip("$") for one in known])
        meant = f"; did you mean `${near}`?" if near else ""
        if not meant and len(known) in range(1, 9):
            meant = f"; expected some of: {', '.join(sorted(known))}"
        self._note(at, f"there is no `{name}`{meant}")

    def _note(self, at: int, problem: str) -> None:
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        place = f"{self._where}, line {line}, column {column}" if not self._wrong else f"line {line}, column {column}"
        self._wrong.append(f"{place}: {problem}")


def _is_word(letter: str) -> bool:
    return letter == "_" or letter.isalnum()


def _nearest(name: str, known: Collection[str]) -> str:
    import difflib  # imported late: only an error needs it

    found = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return found[0] if found else ""

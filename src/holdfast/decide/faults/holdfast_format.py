"""Holdfast's own format: one YAML file with levels and rules, for every vendor.

```yaml
codes:                     # code → remedy; a code has one level, twice is an error
  "79": ISOLATE
  80E18005: RESET_NOW
frequency:
  - codes: [80E18005]
    times: 3               # this many occurrences …
    window_s: 86400        # … within this many seconds (or `1d`)
    remedy: HOLD
    release_s: 172800      # it ends after this many seconds without the code; without it only a person ends it
    dry_run: true          # only report what the rule would do
duration:
  - codes: [81078603]
    fault_s: 20            # a fault that lasts longer than this many seconds …
    recover_s: 60          # … until it has been gone for longer than this
    remedy: AVOID
grace: {save_s: 30, reset_s: 150, heal_s: 15}
```

Ranges and the handling of mistakes are Ascend's: a value out of range drops its entry, a wrong format the whole
file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from holdfast.decide.faults.fault_policy import (
    FAULT_S,
    HEAL_S,
    NEVER_S,
    RECOVER_S,
    RELEASE_S,
    RESET_S,
    SAVE_S,
    TIMES,
    WINDOW_S,
    FrequencyRule,
    GraceTimes,
    Levels,
    PolicyProblem,
    Rules,
    RulesReader,
    Spelling,
    allowed_remedy,
)
from holdfast.decide.faults.fault_remedies import base_remedy
from holdfast.model import amounts
from holdfast.model.faults import Remedy
from holdfast.untrusted import Malformed, yaml_nodes

if TYPE_CHECKING:
    import yaml

_SECTIONS = ("codes", "frequency", "duration", "grace")
_GRACE = {"save_s": SAVE_S, "reset_s": RESET_S, "heal_s": HEAL_S}


class _WrongFormat(Exception):
    """Raised if the file has the wrong format. This module catches it and reports a fatal problem."""


def read_levels(data: bytes) -> Levels:
    """Read the `codes` section of a file. Never raise: the result's `problems` lists the ignored parts."""
    try:
        return _levels(_sections(data).get("codes"))
    except _WrongFormat as error:
        return Levels(problems=(PolicyProblem(where="", what=str(error), fatal=True),))


def read_rules(data: bytes) -> Rules:
    """Read the rules of a file. Never raise: the result's `problems` lists the ignored parts."""
    try:
        sections = _sections(data)
        reader = _PolicyReader()
        for section in ("frequency", "duration"):
            for index, item in enumerate(_list(sections.get(section), section)):
                where = f"{section}[{index}] (line {item.start_mark.line + 1})"
                entry = _mapping(item, where)
                (reader.frequency_entry if section == "frequency" else reader.duration_entry)(entry, where)
        grace = reader.grace(_mapping(sections.get("grace"), "grace"))
    except _WrongFormat as error:
        return Rules(problems=(PolicyProblem(where="", what=str(error), fatal=True),))
    return reader.finish(grace)


def has_codes(data: bytes) -> bool:
    """Return whether the file has a `codes` section."""
    try:
        return "codes" in _sections(data)
    except _WrongFormat:
        return False


def has_rules(data: bytes) -> bool:
    """Return whether the file has a section with rules (`frequency`, `duration` or `grace`)."""
    try:
        return bool({"frequency", "duration", "grace"} & set(_sections(data)))
    except _WrongFormat:
        return False


def _levels(node: yaml.Node | None) -> Levels:
    spelling = Spelling()
    levels: dict[str, Remedy] = {}
    problems: list[PolicyProblem] = []
    for key, value in _mapping(node, "codes", twice=False).items():
        where = f"codes.{key}"
        code = spelling.take(key)
        text = _text(value, where)
        if text not in Remedy.__members__:
            problems.append(PolicyProblem(where=where, what=f"`{text}` is none of {', '.join(Remedy.__members__)}"))
        elif text == "HOLD":
            problems.append(PolicyProblem(where=where, what="no single fault can ask for HOLD; a frequency rule can"))
        elif code in levels:
            _wrong(f"{where}: the code has a level already; a code has one")
        else:
            levels[code] = base_remedy(code, [Remedy[text]])
            if levels[code] is not Remedy[text]:
                problems.append(PolicyProblem(where=where, what=f"a network fault cannot be {text}: NONE"))
    return Levels(levels=levels, spelled=spelling.seen, problems=tuple(problems))


class _PolicyReader(RulesReader):
    def grace(self, entry: dict[str, yaml.Node]) -> GraceTimes:
        self._unknown(entry, _GRACE, "grace")
        values = {}
        for name, limits in _GRACE.items():
            value = _seconds(entry.get(name), f"grace.{name}")
            if value is None:
                continue
            if limits[0] <= value <= limits[1]:
                values[name] = value
            else:
                default = getattr(GraceTimes(), name)
                self.skip(f"grace.{name}", f"{value} is not {limits[0]} to {limits[1]}; {default} is used")
        return GraceTimes(**values)

    def frequency_entry(self, entry: dict[str, yaml.Node], where: str) -> None:
        self._unknown(entry, ("codes", "times", "window_s", "remedy", "release_s", "dry_run"), where)
        codes = self._codes(entry, where)
        window = _seconds(entry.get("window_s"), f"{where}.window_s") or 0
        times = _whole(entry.get("times"), f"{where}.times") or 0
        release = _seconds(entry.get("release_s"), f"{where}.release_s") or NEVER_S
        dry_run = _yes(entry.get("dry_run"), f"{where}.dry_run")
        remedy = self._remedy(entry, where)
        trouble = (
            _missing(codes)
            or _outside(window, WINDOW_S, "window_s")
            or _outside(times, TIMES, "times")
            or _outside(release, RELEASE_S, "release_s")
        )
        if trouble or remedy is None:
            self.skip(where, f"{trouble or 'no remedy'}; the entry is not used")
            return
        for code in self._free(codes, self.frequency, where):
            self.frequency[code] = FrequencyRule(
                window_s=window,
                times=times,
                remedy=self._allowed(code, remedy, where, hold=True),
                release_s=release,
                dry_run=dry_run,
                entry=where,
            )

    def duration_entry(self, entry: dict[str, yaml.Node], where: str) -> None:
        self._unknown(entry, ("codes", "fault_s", "recover_s", "remedy", "dry_run"), where)
        codes = self._codes(entry, where)
        fault = _seconds(entry.get("fault_s"), f"{where}.fault_s")
        recover = _seconds(entry.get("recover_s"), f"{where}.recover_s")
        dry_run = _yes(entry.get("dry_run"), f"{where}.dry_run")
        remedy = self._remedy(entry, where)
        trouble = (
            _missing(codes)
            or _outside(fault or 0, FAULT_S, "fault_s")
            or _outside(recover or 0, RECOVER_S, "recover_s")
        )
        if not trouble and remedy is Remedy.HOLD:
            trouble = "a duration rule cannot ask for HOLD"
        if trouble or remedy is None:
            self.skip(where, f"{trouble or 'no remedy'}; the entry is not used")
            return
        for code in self._free(codes, self.duration, where):
            allowed = self._allowed(code, remedy, where, hold=False)
            self.add_duration(code, allowed, fault_s=fault, recover_s=recover, entry=where, dry_run=dry_run)

    def _unknown(self, entry: dict[str, yaml.Node], known: object, where: str) -> None:
        for key in entry:
            if key not in known:  # type: ignore[operator]  # a tuple or a dict of names
                self.skip(f"{where}.{key}", "is not a key that holdfast knows, and is not used")

    def _codes(self, entry: dict[str, yaml.Node], where: str) -> list[str]:
        return [_text(item, f"{where}.codes") for item in _list(entry.get("codes"), f"{where}.codes")]

    def _remedy(self, entry: dict[str, yaml.Node], where: str) -> Remedy | None:
        text = _text(entry["remedy"], f"{where}.remedy") if "remedy" in entry else ""
        if text not in Remedy.__members__:
            self.skip(f"{where}.remedy", f"`{text}` is none of {', '.join(Remedy.__members__)}")
            return None
        return Remedy[text]

    def _allowed(self, code: str, remedy: Remedy, where: str, *, hold: bool) -> Remedy:
        allowed = allowed_remedy(code, remedy, hold=hold)
        if allowed is not remedy:
            self.skip(where, f"{code} takes NONE, AVOID or ISOLATE, not {remedy.name}: NONE")
        return allowed

    def _free(self, codes: list[str], taken: object, where: str) -> list[str]:
        free: list[str] = []
        for text in codes:
            code = self.spelling.take(text)
            if code in taken or code in free:  # type: ignore[operator]  # a dict by code
                self.skip(where, f"{text} has such a rule already; the first valid one counts")
            else:
                free.append(code)
        return free


def _sections(data: bytes) -> dict[str, yaml.Node]:
    try:
        # Parse to YAML nodes instead of values. Nodes keep the spelling of `80E18005` and `0123`, and show a repeated
        # key.
        root = yaml_nodes(data)
    except Malformed as error:
        at = f"line {error.line}, column {error.column}: " if error.line is not None else ""
        raise _WrongFormat(f"it is not YAML: {at}{error}") from error
    sections = _mapping(root, "the file")
    for name in sections:
        if name not in _SECTIONS:
            _wrong(f"`{name}` is none of {', '.join(_SECTIONS)}")
    return sections


def _wrong(what: str) -> NoReturn:
    raise _WrongFormat(what)


def _is_null(node: yaml.Node | None) -> bool:
    return node is None or (node.tag == "tag:yaml.org,2002:null")


def _mapping(node: yaml.Node | None, where: str, *, twice: bool = True) -> dict[str, yaml.Node]:
    import yaml

    if node is None or _is_null(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        _wrong(f"{where}: a mapping was expected (line {node.start_mark.line + 1})")
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = _text(key, where)
        if name in found:
            kind = "key" if twice else "code"
            _wrong(f"{where}: the {kind} `{name}` stands twice (line {key.start_mark.line + 1})")
        found[name] = value
    return found


def _list(node: yaml.Node | None, where: str) -> list[yaml.Node]:
    import yaml

    if node is None or _is_null(node):
        return []
    if not isinstance(node, yaml.SequenceNode):
        _wrong(f"{where}: a list was expected (line {node.start_mark.line + 1})")
    return list(node.value)


def _text(node: yaml.Node, where: str) -> str:
    import yaml

    if not isinstance(node, yaml.ScalarNode) or _is_null(node):
        _wrong(f"{where}: a word was expected (line {node.start_mark.line + 1})")
    return str(node.value)


def _whole(node: yaml.Node | None, where: str) -> int | None:
    if node is None or _is_null(node):
        return None
    text = _text(node, where)
    if node.tag != "tag:yaml.org,2002:int" or not text.lstrip("+-").isdigit():
        _wrong(f"{where}: a whole number was expected, not `{text}` (line {node.start_mark.line + 1})")
    return int(text)


def _seconds(node: yaml.Node | None, where: str) -> int | None:
    """Return a whole number of seconds from a YAML node: a number, or a text with units (`2h`). `where`: the place in
    the file, for a problem.
    """
    if node is None or node.tag != "tag:yaml.org,2002:str":
        return _whole(node, where)
    text = _text(node, where)
    found = amounts.seconds(text)
    if found is None:
        _wrong(f"{where}: {amounts.DURATION} was expected, not `{text}` (line {node.start_mark.line + 1})")
    return round(found)


def _yes(node: yaml.Node | None, where: str) -> bool:
    if node is None or _is_null(node):
        return False
    text = _text(node, where)
    if node.tag != "tag:yaml.org,2002:bool":
        _wrong(f"{where}: true or false was expected, not `{text}` (line {node.start_mark.line + 1})")
    return text.lower() in ("true", "yes", "on")


def _missing(codes: list[str]) -> str:
    return "" if codes else "codes is missing or empty"


def _outside(value: int, limits: tuple[int, int], name: str) -> str:
    return "" if limits[0] <= value <= limits[1] else f"{name} {value} is not {limits[0]} to {limits[1]}"

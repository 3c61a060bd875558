"""The house rules that a program can check: who may import whom, what is pure, what needs a reason beside it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from places import ROOT, SRC

TESTING = ROOT / "src" / "holdfast_testing"
FILES = sorted([*SRC.rglob("*.py"), *TESTING.rglob("*.py")])

# fmt: off
BELOW_A_RUN = frozenset({
    "model", "catalogue", "explain", "decide", "observe", "act", "record", "wire", "settings", "runtime", "bundle",
    "fetch", "check_profiles", "check_registry",
})
# fmt: on
#: Stations that are named nowhere (holdfast_testing, the registry of checks) may see all.
MAY_SEE: dict[str, frozenset[str]] = {
    "model": frozenset({"model"}),
    "catalogue": frozenset({"model", "catalogue"}),
    "explain": frozenset({"model", "catalogue", "explain"}),
    "decide": frozenset({"model", "catalogue", "explain", "decide"}),
    "observe": frozenset({"model", "catalogue", "observe"}),
    "act": frozenset({"model", "catalogue", "runtime", "act"}),
    "record": frozenset({"model", "catalogue", "record"}),
    "wire": frozenset({"model", "decide", "act", "wire"}),
    "settings": frozenset({"model", "settings"}),
    "bundle": frozenset({"model", "bundle"}),
    "runtime": frozenset({"model", "runtime"}),
    "fetch": frozenset({"model", "fetch"}),
    "launch": frozenset({*BELOW_A_RUN, "launch"}),
    "queue": frozenset({*BELOW_A_RUN, "queue"}),
    "platforms": frozenset({*BELOW_A_RUN, "launch", "queue", "platforms"}),
    "node": frozenset({*BELOW_A_RUN, "launch", "platforms", "node"}),
    "owner": frozenset({*BELOW_A_RUN, "launch", "platforms", "node", "owner"}),
    "main": frozenset({*BELOW_A_RUN, "launch", "platforms", "node", "owner", "main"}),
    "report": frozenset({"model", "catalogue", "record", "report"}),
    "cli": frozenset({"model", "catalogue", "record", "settings", "runtime", "report", "cli"}),
    "metrics": frozenset({"model", "decide", "observe", "record", "node", "report", "metrics"}),
    "web": frozenset({"model", "decide", "observe", "record", "node", "metrics", "report", "cli", "web"}),
    "notices": frozenset({"model", "act", "record", "report", "notices"}),
    "api": frozenset({"model", "act", "record", "settings", "report", "cli", "api"}),
}

OPEN_TO_ALL = frozenset({"errors", "lazy_pattern", "file_modes", "safe_text", "untrusted", "version"})
#: What opens files, waits or starts processes may be seen by all stations that may do so.
OPEN_TO_IMPURE = frozenset(
    {
        "bundle_detection",
        "safe_directories",
        "safe_files",
        "clock",
        "reactor",
        "children",
        "import_path",
        "python_environments",
    }
)
#: What `cli` and `api` may use of a run's rooms.
DOORS = frozenset(
    {
        "explain.text.secret_filter",
        "node.exit_status",
        "launch.jobfile",
        "launch.launch_spec",
        "launch.notice_check",
        "main",
        "node.attempt_progress",
        "node.check_entry",
        "node.devices.fault_commands",
        "node.explain_files",
        "node.log_source",
        "node.named_logs",
        "owner.nodes.operator_client",
        "platforms.job_queue",
        "platforms.job_takeover",
        "platforms.node_hooks",
        "platforms.platform",
        "platforms.platform_registry",
        "platforms.program_output",
        "platforms.remote_jobs",
        "platforms.requeued_jobs",
        "platforms.submission",
        "platforms.submit_request",
        "queue.core_client",
        "queue.core_messages",
        "queue.core_place",
        "queue.core_process",
        "queue.core_records",
        "queue.job_start",
        "wire.control_socket",
    }
)

PURE = ("model", "explain", "decide")
PURE_TOO = (*PURE, "lazy_pattern", "safe_text", "untrusted")
# fmt: off
IMPURE_MODULES = frozenset({
    "time", "os", "random", "logging", "subprocess", "socket", "threading", "multiprocessing", "asyncio", "select",
    "selectors", "tempfile", "shutil", "glob", "io", "secrets", "uuid", "signal", "fcntl", "sqlite3", "urllib", "http",
    "platform", "resource", "psutil", "sys",
})
IMPURE_METHODS = frozenset({
    "read_text", "read_bytes", "write_text", "write_bytes", "exists", "is_file", "is_dir", "iterdir", "stat", "mkdir",
    "unlink", "touch", "resolve", "rglob", "cwd", "home", "now", "today", "utcnow", "getenv",
})
# fmt: on
PURE_NAMES: dict[str, frozenset[str]] = {
    # Tables of names and numbers: they read nothing.
    "signal": frozenset({"Signals"}),
}
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "breakpoint", "__import__"})


def _place(path: Path) -> Path:
    """Inside `holdfast`; of the tools to test with, from `holdfast_testing` on."""
    return path.relative_to(SRC if path.is_relative_to(SRC) else SRC.parent)


def _name(path: Path) -> str:
    return str(_place(path))


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path), str(path))


@cache
def _by_kind(path: Path) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {kind: [] for kind in LOOKED_AT}
    for node in ast.walk(_tree(path)):
        if type(node) in found:
            found[type(node)].append(node)
    return found


#: What the rules look at: each file is parsed and walked once for all of them.
LOOKED_AT = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute, ast.ExceptHandler, ast.FunctionDef)


def _nodes(path: Path, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    for kind in kinds:
        yield from _by_kind(path)[kind]


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """The syntax trees of all files take 200 MB: tests elsewhere need them no more."""
    yield
    for kept in (_text, _tree, _by_kind, _ours, _state_fields):
        kept.cache_clear()


Rule = Callable[[Path], Iterable[str]]


def _all_keep(rule: Rule, paths: Iterable[Path] = FILES, instead: str = "") -> None:
    """`rule` yields what is wrong in a file: all of it is told at once."""
    wrong = [f"{_name(path)}, {what}" for path in paths for what in rule(path)]
    assert not wrong, "\n".join([instead, *wrong])


def _station(path: Path) -> str:
    """`cli` for cli/run.py, `clock` for clock.py."""
    return _place(path).parts[0].removesuffix(".py")


def _modules(path: Path) -> Iterator[tuple[int, str]]:
    """Every module of ours that a file imports, also inside functions and behind importlib, with the line."""
    nodes = _nodes(path, ast.Import, ast.ImportFrom, ast.Call)
    return _imported(nodes, list(path.relative_to(SRC.parent).parts[:-1]))


def _imported(nodes: Iterable[ast.AST], package: list[str]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = ".".join(package[: len(package) + 1 - level]) if level else ""
                whole = ".".join(part for part in (base, module or "") if part)
                # `from holdfast import record` names a station just as `import holdfast.record` does.
                yield from ((node.lineno, f"{whole}.{alias.name}") for alias in names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module)), *_]):
                yield node.lineno, module


@cache
def _ours(path: Path) -> list[tuple[int, list[str]]]:
    """Of both packages; with the line, and without `holdfast`."""
    found = [(line, module.split(".")) for line, module in _modules(path)]
    return [
        (line, parts[1:] if parts[0] == "holdfast" else parts)
        for line, parts in found
        if parts[0] == "holdfast_testing" or (parts[0] == "holdfast" and len(parts) > 1)
    ]


def _may_not_see(path: Path) -> Iterator[str]:
    station = _station(path)
    allowed = MAY_SEE.get(station)
    if allowed is None:
        return
    for line, parts in _ours(path):
        if parts[0] in allowed or parts[0] in OPEN_TO_ALL:
            continue
        if parts[0] in OPEN_TO_IMPURE and station not in PURE:
            continue
        through_a_door = any(".".join([*parts, ""]).startswith(f"{door}.") for door in DOORS)
        if through_a_door and station in ("cli", "api"):
            continue
        yield f"line {line}: {station} must not import holdfast.{'.'.join(parts)}"


def test_a_file_imports_only_what_its_station_may_see() -> None:
    _all_keep(_may_not_see)


Graph = dict[str, set[str]]


def _graph(place: Callable[[Path], str]) -> Graph:
    """Who imports whom, lazily and for types too; `place`: what a file counts as."""
    by_module = {".".join(_place(path).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
    graph: Graph = {place(path): set() for path in FILES}
    for path in FILES:
        for _, parts in _ours(path):
            while parts and ".".join(parts) not in by_module:
                parts = parts[:-1]
            if parts and (to := place(by_module[".".join(parts)])) != place(path):
                graph[place(path)].add(to)
    return graph


def _circles(graph: Graph) -> list[list[str]]:
    """What is in no order: every set of nodes that lead to each other."""
    reach = {node: {node} for node in graph}
    for node, found in reach.items():
        to_see = [node]
        while to_see:
            fresh = graph[to_see.pop()] - found
            found |= fresh
            to_see += fresh
    sets = {frozenset(other for other in reach[node] if node in reach[other]) for node in graph}
    return sorted(sorted(circle) for circle in sets if len(circle) > 1)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"a", "f"}, "f": {"e"}}
    assert _circles(graph) == [["b", "c"], ["e", "f"]]


def _folder(path: Path) -> str:
    """A file at the root counts as a folder of its own."""
    folder = "/".join(_place(path).parts[:-1])
    return folder or _name(path)


def test_stations_stand_in_an_order() -> None:
    assert _circles(_graph(_station)) == []


def test_folders_stand_in_an_order() -> None:
    assert _circles(_graph(_folder)) == []


def test_files_stand_in_an_order() -> None:
    """Whether a file is imported for its types only or not: who reads one of a circle has to read them all."""
    assert _circles(_graph(_name)) == []


#: Rooms whose files import each other at the top. All of `decide` costs 2 ms; the doors of `explain` are lazy.
EAGER_ROOMS = ("decide", "explain")


def _late_imports(path: Path) -> Iterator[str]:
    first = {node.lineno for node in _tree(path).body}
    for line, parts in _ours(path):
        if parts[0] == _station(path) and line not in first:
            yield f"line {line}: import {'.'.join(parts)} at the top"


def test_files_of_an_eager_room_import_each_other_at_the_top() -> None:
    door = SRC / "explain" / "__init__.py"
    _all_keep(_late_imports, [path for path in FILES if _station(path) in EAGER_ROOMS and path != door])


def test_every_station_of_the_rule_is_there() -> None:
    stations = {path.name for path in SRC.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert stations >= set(MAY_SEE)
    assert stations == set(MAY_SEE), "a new station needs its line in MAY_SEE"


def test_the_rule_would_notice() -> None:
    """The finders below all rest on `_imported`: it must see every way to import."""
    text = """
import holdfast.act.local
def f():
    from holdfast.main import single_machine_run as run
    from holdfast import record as r
    from ..report import text_report
    import importlib
    importlib.import_module("holdfast.check_registry")
"""
    found = [module for _, module in _imported(ast.walk(ast.parse(text)), ["holdfast", "model"])]
    assert {module for module in found if module.startswith("holdfast.")} == {
        "holdfast.act.local",
        "holdfast.main.single_machine_run",
        "holdfast.record",
        "holdfast.report.text_report",
        "holdfast.check_registry",
    }


def test_all_that_is_wrong_is_told_at_once_by_file_and_line() -> None:
    model, clock = SRC / "model" / "__init__.py", SRC / "clock.py"
    with pytest.raises(AssertionError) as caught:
        _all_keep(lambda path: [f"line {n}: no" for n in (1, 2)], [model, clock], "do this")
    told = ["do this", *(f"{name}, line {n}: no" for name in ("model/__init__.py", "clock.py") for n in (1, 2))]
    assert [line.strip() for line in str(caught.value).splitlines()][: len(told)] == told


def _impurities(path: Path) -> Iterator[str]:
    for node in _nodes(path, ast.Import, ast.ImportFrom, ast.Call, ast.Attribute):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.split(".")[0] in IMPURE_MODULES - set(PURE_NAMES):
                        yield f"line {node.lineno}: import {alias.name}"
            case ast.ImportFrom(module=str(module), names=names, level=0):
                top = module.split(".")[0]
                if top in IMPURE_MODULES and not {alias.name for alias in names} <= PURE_NAMES.get(top, frozenset()):
                    yield f"line {node.lineno}: from {module} import …"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"line {node.lineno}: {name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_METHODS:
                yield f"line {node.lineno}: .{name}()"
            case ast.Attribute(value=ast.Name(id="_signal" | "signal"), attr=name) if name not in (
                *PURE_NAMES["signal"],
                "signal",
            ) and _imports_signal(path):
                yield f"line {node.lineno}: signal.{name}"


def _imports_signal(path: Path) -> bool:
    return any(module.split(".")[0] == "signal" for _, module in _modules(path))


def test_pure_stations_read_no_clock_no_file_no_environment_and_no_chance() -> None:
    _all_keep(_impurities, [path for path in FILES if _station(path) in PURE_TOO])


def _sleeps(path: Path) -> Iterator[str]:
    for node in _nodes(path, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep") | ast.Name(id="sleep")):
                yield f"line {node.lineno}"


def test_nothing_sleeps_or_polls() -> None:
    _all_keep(_sleeps, instead="wait for a descriptor or an event instead")


_IGNORES = re.compile(
    r"#\s*(?:type:\s*ignore(?:\[[\w, -]*\])?|noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?|pragma:\s*no cover)"
)


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.tokenize(io.BytesIO(path.read_bytes()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


ALL_PYTHON = sorted(
    path for top in ("src", "tests", "bench", "examples") for path in (ROOT / top).rglob("*.py") if path.is_file()
)


def test_every_ignored_rule_has_its_reason_beside_it() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}, line {line}: {comment}"
        for path in ALL_PYTHON
        if _IGNORES.search(_text(path))  # the tokenizer takes a hundred times as long: only the files that have any
        for line, comment in _comments(path)
        if _IGNORES.search(comment) and len(_IGNORES.sub("", comment).strip(" #-–—:")) < 8
    ]
    assert not wrong, "\n".join(wrong)


def _broad_excepts(path: Path) -> Iterator[str]:
    comments: set[int] | None = None
    for node in _nodes(path, ast.ExceptHandler):
        match node:
            case ast.ExceptHandler(type=None | ast.Name(id="Exception" | "BaseException")):
                raises_again = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
                near = range(node.lineno, (node.body[0].lineno if node.body else node.lineno) + 1)
                comments = {line for line, _ in _comments(path)} if comments is None else comments
                if not raises_again and not any(line in comments for line in near):
                    yield f"line {node.lineno}"


def test_a_broad_except_says_why() -> None:
    _all_keep(_broad_excepts)


DECODERS = frozenset({"loads", "load", "decode", "safe_load", "compose", "parse", "Decoder", "JSONDecoder", "convert"})
OF = frozenset({"json", "yaml", "tomllib", "msgspec", "msgpack", "toml", "pickle", "marshal"})
#: Modules that decode bytes without the door, each with the reason why they may.
DECODES_ITSELF: dict[str, str] = {
    "untrusted.py": "the door itself",
    "worker.py": "runs in the worker, which imports nothing of ours, and reads what the supervisor wrote to it",
    "act/warm/inside/nursery_main.py": "runs in the nursery, in the user's Python",
    "act/warm/inside/fork_retreat.py": "one nursery to the next, in the user's Python",
    "act/warm/inside/fork_to_worker.py": "runs in the worker, in the user's Python",
    "act/warm/nursery_protocol.py": "what the nursery says, in marshal: it imports nothing more; its errors are caught",
}


def _decoders(path: Path) -> Iterator[str]:
    for node in _nodes(path, ast.Attribute, ast.ImportFrom):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in OF and name in DECODERS:
                yield f"line {node.lineno}: {module}.{name}"
            case ast.Attribute(value=ast.Attribute(attr=module), attr=name) if module in OF and name in DECODERS:
                yield f"line {node.lineno}: {module}.{name}"
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in OF:
                wrong = {alias.name for alias in names} & DECODERS
                yield from (f"line {node.lineno}: from {module} import {name}" for name in sorted(wrong))


def _decodes(path: Path) -> Iterator[str]:
    found = list(_decoders(path))
    if _name(path) not in DECODES_ITSELF:
        yield from found
    elif not found:
        yield "it decodes nothing any more: its line can go"


def test_bytes_of_others_are_decoded_at_one_door() -> None:
    instead = "use holdfast.untrusted: it bounds size and depth, and raises one error"
    _all_keep(_decodes, [path for path in FILES if _station(path) != "holdfast_testing"], instead)


#: Files outside `explain` that make an `ExitReport`, each with the reason.
MAKES_A_REPORT: dict[str, str] = {
    "holdfast_testing/history_generator.py": "a history for benchmarks: nothing has ended",
    "cli/show.py": "the keys of a report that is not there yet, all of them null",
}


def _reports_made(path: Path) -> Iterator[str]:
    made = []
    for node in _nodes(path, ast.Call):
        match node:
            case ast.Call(func=ast.Name(id="ExitReport")):
                made.append(f"line {node.lineno}")
    if _name(path) not in MAKES_A_REPORT:
        yield from made
    elif not made:
        yield "it makes none any more: its line can go"


def test_only_explain_makes_the_report_of_an_exit() -> None:
    _all_keep(_reports_made, [path for path in FILES if _station(path) != "explain"], "explain says what an end means")


_UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b|NotImplementedError\(\)")


def _unfinished(path: Path) -> Iterator[str]:
    for n, line in enumerate(_text(path).splitlines(), 1):
        if _UNFINISHED.search(line):
            yield f"line {n}: {line.strip()}"


def test_nothing_is_left_unfinished() -> None:
    _all_keep(_unfinished)


def _without_a_purpose(path: Path) -> Iterator[str]:
    if not ast.get_docstring(_tree(path)):
        yield "line 1: no docstring"


def test_every_module_says_what_it_is_for() -> None:
    _all_keep(_without_a_purpose, instead="the first line of a module says what it is for")


#: What others than the owner's own rooms may ask of a gang.
_OF_A_GANG = frozenset({"view", "ended", "phase", "attempt", "spec", "handle", "next_wake"})


def _reaches_in(path: Path) -> Iterator[str]:
    for node in _nodes(path, ast.Attribute):
        match node:
            case ast.Attribute(value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr=name):
                pass
            case ast.Attribute(attr=name):
                owner = ""
            case _:
                continue
        if name == "attempt_state" or (owner in ("gang", "_gang") and name not in _OF_A_GANG):
            yield f"line {node.lineno}: {owner}.{name}"


def test_nothing_outside_reaches_into_the_gang() -> None:
    """Its view is what others may see."""
    outside = [path for path in FILES if _station(path) not in ("decide", "holdfast_testing")]
    _all_keep(_reaches_in, outside, "ask for Gang.view()")


#: The states of a job and of an attempt, each with the one file that writes its fields.
STATES = {"GangState": SRC / "decide" / "job_state.py", "AttemptState": SRC / "decide" / "attempt_state.py"}
#: Names under which other files hold one of them.
HOLD_A_STATE = frozenset({"gang", "_gang", "attempt_state", "_attempt_state"})
MUTATORS = frozenset({
    "append", "add", "pop", "popitem", "clear", "update", "discard", "remove", "extend", "insert", "setdefault",
    "sort", "reverse", "difference_update", "intersection_update", "symmetric_difference_update",
})  # fmt: skip


@cache
def _state_fields() -> frozenset[str]:
    return frozenset(
        node.attr
        for name, path in STATES.items()
        for state in _tree(path).body
        if isinstance(state, ast.ClassDef) and state.name == name
        for node in ast.walk(state)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        and isinstance(node.ctx, ast.Store)
    )  # fmt: skip


def _written(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns, deletes or mutates, also within a tuple or through an index."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            places = targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            places = [target]
        case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in MUTATORS:
            places = [value]
        case _:
            return
    while places:
        place = places.pop()
        match place:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                places = [*places, *elements]
            case ast.Subscript(value=value) | ast.Starred(value=value):
                places = [*places, value]
            case ast.Attribute():
                yield place


def _writes_a_state(path: Path) -> Iterator[str]:
    tree = _tree(path)
    inherits = {
        id(node)
        for state in ast.walk(tree)
        if isinstance(state, ast.ClassDef) and {"Gang", *STATES} & {ast.unparse(base) for base in state.bases}
        for node in ast.walk(state)
    }
    for node in ast.walk(tree):
        for attribute in _written(node):
            holder = ast.unparse(attribute.value).split(".")[-1]
            if attribute.attr in _state_fields() and (
                holder in HOLD_A_STATE or (holder == "self" and id(attribute) in inherits)
            ):
                yield f"line {attribute.lineno}: {ast.unparse(attribute)}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr in _state_fields():
            holder = ast.unparse(node.value).split(".")[-1]
            if holder in HOLD_A_STATE:
                yield f"line {node.lineno}: {ast.unparse(node)} is private"


def test_only_its_own_file_writes_the_state_of_a_job_or_an_attempt() -> None:
    """A planted bug may: it breaks on purpose."""
    others = [path for path in FILES if path not in {*STATES.values(), *BROKEN}]
    _all_keep(_writes_a_state, others, "add a method to the state, with a name that says what has happened")


@pytest.mark.parametrize(
    "line",
    [
        "x = gang.phase = 1",
        "self._gang.attempt_state.stop = None",
        "a, gang.attempt_state.found = 1, 2",
        "attempt_state.ports['a'] = 1",
        "gang.records.append(1)",
        "del self.gang.absent['a']",
        "gang.highest += 1",
        "attempt_state._said",
        "class Other(Gang):\n    def f(self):\n        self.due = 1",
    ],
)
def test_a_write_to_a_state_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(line, encoding="utf-8")
    assert len(list(_writes_a_state(path))) == 1


@pytest.mark.parametrize("line", ["gang.say('x')", "x = gang.phase", "self.due = 1", "known.state = 1"])
def test_a_read_or_a_call_is_no_write(line: str, tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(line, encoding="utf-8")
    assert list(_writes_a_state(path)) == []


#: Files that read a clock, each with the reason. All else is given `now`, or the run's clock.
READS_A_CLOCK: dict[str, str] = {
    "clock.py": "the one clock of a run",
    "worker.py": "runs in the worker",
    "act/warm/inside/fork_to_worker.py": "runs in the worker",
    "act/warm/inside/nursery_main.py": "runs in the nursery",
    "act/cgroups.py": "ends what a job left behind, in the guard or in another command: no reactor is there",
    "main/lost_jobs.py": "the guard's last act, when the supervisor and its reactor are dead",
    "node/explain_files.py": "a command of its own: `holdfast explain`",
    "platforms/program_output.py": "limits a program that `holdfast explain` waits for",
    "node/prechecks/check_child.py": "runs in the process of a check, and measures it",
    "node/prechecks/check_process.py": "`describe_in_child` waits for one process before anything starts",
    "observe/devices/nvml_events.py": "runs in a process of its own, which waits in the library",
    "holdfast_testing/fuzz_wire.py": "measures how long its cases took",
    "holdfast_testing/queue_simulation.py": "measures how long its histories took",
    "holdfast_testing/simulate.py": "measures how long a simulation took",
}
#: Checks measure; each command of `cli` is a process of its own.
MEASURE = ("observe/checks", "cli/")
CLOCKS = frozenset({"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "process_time", "clock_gettime"})


def _reads_a_clock(path: Path) -> Iterator[str]:
    for node in _nodes(path, ast.Attribute, ast.ImportFrom):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr=name) if name in CLOCKS:
                yield f"line {node.lineno}: time.{name}"
            case ast.ImportFrom(module="time", names=names):
                yield f"line {node.lineno}: from time import {', '.join(alias.name for alias in names)}"
            case ast.Attribute(attr="now" | "utcnow" | "today", value=ast.Name(id="datetime" | "date")):
                yield f"line {node.lineno}: datetime"


def _another_clock(path: Path) -> Iterator[str]:
    found = list(_reads_a_clock(path))
    if _name(path) in READS_A_CLOCK:
        if not found:
            yield "it reads no clock any more: its line can go"
    elif not _name(path).startswith(MEASURE):
        yield from found


def test_time_comes_from_one_clock() -> None:
    _all_keep(_another_clock, instead="take `now` as an argument, or the run's clock")


BROKEN = sorted(TESTING.glob("broken_*.py"))


def test_broken_parts_are_found() -> None:
    names = [path.name for path in BROKEN]
    assert names == ["broken_agents.py", "broken_nodes.py", "broken_owners.py", "broken_resumes.py"]


def _private_names(path: Path) -> Iterator[str]:
    for node in _nodes(path, ast.FunctionDef, ast.Attribute):
        match node:
            case ast.FunctionDef(name=name) | ast.Attribute(attr=name) if name.startswith("_") and name != "__init__":
                yield f"line {node.lineno}: {name}"


def test_a_planted_bug_replaces_a_part_and_touches_nothing_private() -> None:
    """Else it would break the code's inner shape, which may change, and not a promise that the rest relies on."""
    _all_keep(_private_names, BROKEN, "replace a part that the constructor takes, or a public method")


OWNERS = frozenset(
    {
        "owner/owner_side.py",
        "owner/node_queries.py",
        "owner/job_outputs.py",
        "owner/job_records.py",
        "owner/control_server.py",
    }
)
NODES = frozenset(
    {"node/node_side.py", "node/node_requests.py", "node/evidence_collector.py", "node/optional_parts.py"}
)
#: What looks at a machine.
NOT_THE_OWNERS = ("observe", "act", "node.devices", "node.prechecks", *(name[:-3].replace("/", ".") for name in NODES))
#: What other commands send to the owner's door.
FOR_BOTH = frozenset({"wire.fault_news.FaultsLine"})
#: What judges the job.
NOT_THE_NODES = (
    "record.journal", "explain.explain", "explain.funnel", "explain.causes.attribution", "explain.explanation_rules",
    "decide.gang", "decide.owner", "decide.attempt_state", "decide.recovery.recovery", "decide.attempt_ending",
    *(name[:-3].replace("/", ".") for name in OWNERS),
)  # fmt: skip


def _of_the_other_side(path: Path) -> Iterator[str]:
    foreign = NOT_THE_OWNERS if _name(path) in OWNERS else NOT_THE_NODES
    for line, parts in _ours(path):
        module = ".".join(parts)
        if module not in FOR_BOTH and any(f"{module}.".startswith(f"{name}.") for name in foreign):
            yield f"line {line}: {module}"


def test_owner_and_node_meet_in_the_link_only() -> None:
    _all_keep(
        _of_the_other_side,
        [path for path in FILES if _name(path) in OWNERS | NODES],
        "say it over wire/link_interface.py",
    )


#: Who makes processes beside the lab, and what. Others have `children.start` and `isolated.forked`.
STARTS_PROCESSES: dict[str, str] = {
    "api/run_job.py": "the supervisor, for a program that calls `holdfast.run`",
    "children.py": "every program that is a helper",
    "act/isolated_fork.py": "every piece of our own code that is a helper",
    "act/time_limited.py": "the child has no descriptor but one, since a dead mount may hold it for ever",
    "act/guard.py": "the supervisor is the guard's child",
    "act/guarded_children.py": "owner and agent are the guard's children",
    "act/spawn.py": "a worker, which waits for its go",
    "act/warm/inside/fork_retreat.py": "the nursery's copies of itself",
    "act/warm/inside/nursery_main.py": "a warm worker, made by the nursery",
    "bundle/build_tools.py": "compiler and companions, while a tree is built",
    "fetch/git_source.py": "in the process of a fetch, which ends with all its children",
    "cli/queued_run.py": "`holdfast stop`, while the job's output is shown",
    "queue/core_client.py": "the core, which outlives the command that needs it",
    "queue/core_process.py": "the core is its keeper's child",
    "queue/job_start.py": "a job's run, which outlives the core",
    "launch/interpreter.py": "asked before there is a job, and waited for",
    "launch/notice_check.py": "asked before there is a job, and waited for",
    "platforms/program_output.py": "in `holdfast explain`, which waits for it",
    "observe/checks/driver.py": "in the process of a check, which ends with all its children",
    "observe/checks/executable.py": "in the process of a check",
    "observe/checks/python_program.py": "in the process of a check",
    "observe/checks/worker_groups.py": "in the process of a check",
    "observe/checks/mounts.py": "in the process of a check",
}
_MAKERS = {"fork", "forkpty", "posix_spawn", "posix_spawnp", "Popen", "check_output", "check_call", "system", "popen"}


def test_processes_are_made_in_few_places() -> None:
    found = set()
    for path in FILES:
        for node in _nodes(path, ast.Call):
            match node:
                case ast.Call(func=ast.Attribute(attr=name)) if name in _MAKERS:
                    found.add(_name(path))
                case ast.Call(func=ast.Attribute(value=ast.Name(id="subprocess"), attr="run")):
                    found.add(_name(path))
    assert {name for name in found if not name.startswith("holdfast_testing/")} == set(STARTS_PROCESSES)

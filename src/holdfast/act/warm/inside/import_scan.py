"""Which installed modules a script imports, in order, found by reading it: nothing of the user's own is run.

Installed modules are those of the standard library and of site-packages; only they are worth importing before the
fork, and only they are the same for every script. Modules of the user's own are read for *their* imports. Reading
stops at the first statement that may change what a later import does: a script that prepares its imports gets to do so.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import tokenize
from importlib.machinery import ModuleSpec, PathFinder

from .fork_safety import installed

#: (`import`, module, names asked of it), (`set` or `default`, variable, (value,)): an `os.environ` with constants,
#: (`warn`, call, ()): a filter of warnings, or (`sets`, `logging` or `random`, ()): here the script sets what imports
#: may set too.
Step = tuple[str, str, tuple[str, ...]]
#: Where a step stands: file, line, name of the module; and the exceptions that are caught there, empty if none are.
Place = tuple[str, int, str, str]

MOST_FILES = 2_000
#: Functions that change what later imports do: of gevent, eventlet, matplotlib, pyximport, dotenv and the like.
_CHANGERS = frozenset({
    "addaudithook", "addsitedir", "captureWarnings", "chdir", "filterwarnings", "fork", "install",
    "install_import_hook", "load_dotenv", "monkey_patch", "patch_all", "putenv", "resetwarnings",
    "set_default_device", "set_default_dtype", "set_default_tensor_type", "set_event_loop_policy", "set_start_method",
    "setdefaulttimeout", "setlocale", "simplefilter", "start", "unsetenv", "use",
})  # fmt: skip
_STATES = frozenset({"argv", "environ", "environb", "meta_path", "modules", "path_hooks", "stderr", "stdout"})
#: Functions after which an import that does something of the kind would have another outcome than before them.
_SETTERS = {
    **dict.fromkeys(("basicConfig", "dictConfig", "fileConfig", "addHandler"), "logging"),
    **dict.fromkeys(("seed", "manual_seed", "seed_everything", "set_seed"), "random"),
}
_MUTATORS = frozenset({
    "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update", "reverse", "sort",
})  # fmt: skip


class ReadingStopped(Exception):
    """The statement at which reading ends."""


class Finder:
    """Reads a script and the modules of the user that it imports. `note` says why it ended early."""

    def __init__(self, first_path: str | None) -> None:
        self.steps: list[Step] = []
        self.places: list[Place] = []
        """Of each step."""
        self.main = ""
        """The file that will be `__main__`."""
        self._here: Place = ("", 0, "", "")
        self.files: list[str] = []
        """The user's own files that were read: a change in them may change the steps."""
        self.note = ""
        self.left: list[str] = []
        """Packages that the main file imports after that: each worker imports them by itself."""
        self._path = [*([first_path] if first_path is not None else []), *sys.path]
        self._seen: set[str] = set()
        self._at = 0
        """The line of the main file that is being read."""

    def script(self, file: str) -> None:
        self.main = file
        self._begin(lambda: self._read(file, "", "__main__"))

    def module(self, name: str) -> None:
        """What `python -m NAME` imports: the parents of the module, and then what it imports itself."""
        self._begin(lambda: self._run_module(name))

    def _begin(self, read: object) -> None:
        assert callable(read)
        try:
            read()
        except ReadingStopped as stop:
            self.note = str(stop)
            self.left = self._after()
        except RecursionError:
            self.note = "its imports are nested too deeply"

    def _after(self) -> list[str]:
        """What the main file imports at its top level behind the statement at which reading ended."""
        if not self.main:
            return []  # it ended in a package above it
        with tokenize.open(self.main) as source:
            body = ast.parse(source.read(), self.main).body
        names: list[str] = []
        for node in body:
            if node.lineno <= self._at or (isinstance(node, ast.If) and _main_guard(node)):
                continue
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.append(str(node.module))
        had = {name.partition(".")[0] for what, name, _ in self.steps if what == "import"}
        tops = dict.fromkeys(name.partition(".")[0] for name in names)
        return [top for top in tops if top not in had and (spec := self._spec(top)) and _weighs(_place(spec) or "")]

    def _run_module(self, name: str) -> None:
        parent, _, _ = name.rpartition(".")
        if parent:
            self._import(parent, ())
        spec = self._spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            self._import(name, ())
            name += ".__main__"
            spec = self._spec(name)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            self.main = spec.origin
            self._read(spec.origin, name.rpartition(".")[0], "__main__")

    # ------------------------------------------------------------------------------------------ reading

    def _read(self, file: str, package: str, name: str) -> None:
        if file in self._seen:
            return
        self._seen.add(file)
        if len(self._seen) > MOST_FILES:
            raise ReadingStopped(f"more than {MOST_FILES} files of yours are imported")
        if not installed(file):
            self.files.append(file)
        try:
            with tokenize.open(file) as source:
                tree = ast.parse(source.read(), file)
        except (OSError, SyntaxError, ValueError):
            return  # it will say so itself, in the worker
        local = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        here = self._here
        self._block(tree.body, package, (file, 0, name, ""), local)
        self._here = here

    def _block(self, body: list[ast.stmt], package: str, place: Place, local: dict[str, ast.FunctionDef]) -> None:
        file, _, module_name, caught = place
        for node in body:
            where = f"line {node.lineno} of {os.path.basename(file)}"
            self._here = (file, node.lineno, module_name, caught)
            if module_name == "__main__":
                self._at = node.lineno
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias.name, ())
            elif isinstance(node, ast.ImportFrom):
                name = _absolute(node.module or "", package, node.level)
                if name and name != "__future__":
                    self._import(name, tuple(alias.name for alias in node.names))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            elif isinstance(node, ast.If) and _main_guard(node):
                return
            elif isinstance(node, ast.Try):
                self._block(node.body, package, (file, 0, module_name, _caught(node.handlers) or caught), local)
                for handler in node.handlers:
                    if what := changes(handler, local):
                        raise ReadingStopped(f"{where} ({what}) may change what is imported after it")
                self._block([*node.orelse, *node.finalbody], package, place, local)
            elif isinstance(node, ast.With) and _catches_warnings(node):
                continue  # what it changes, it takes back
            elif (step := constant_variable(node) or constant_filter(node)) is not None:
                self._add(step)
            elif what := changes(node, local):
                raise ReadingStopped(f"{where} ({what}) may change what is imported after it")
            else:
                for what in setters(node, local):
                    self._add(("sets", what, ()))

    # ------------------------------------------------------------------------------------------ modules

    def _import(self, name: str, wanted: tuple[str, ...]) -> None:
        spec = self._spec(name.partition(".")[0])
        if spec is None:
            return  # not here: the script will find out, or has another way
        place = _place(spec)
        if place is None or installed(place):
            step: Step = ("import", name, wanted)
            if step not in self.steps:
                self._add(step)
            return
        parts = name.split(".")
        whole = [".".join(parts[: end + 1]) for end in range(len(parts))]
        for inner in [*whole, *(f"{name}.{each}" for each in wanted if each != "*")]:
            spec = self._spec(inner)
            if spec is None or not spec.origin or not spec.origin.endswith(".py"):
                continue
            is_package = spec.submodule_search_locations is not None
            self._read(spec.origin, inner if is_package else inner.rpartition(".")[0], inner)

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.places.append(self._here)

    def _spec(self, name: str) -> ModuleSpec | None:
        """Where a module would come from; no package is imported for it."""
        top, _, rest = name.partition(".")
        spec: ModuleSpec | None = None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(top, self._path if finder is PathFinder else None)
            if spec is not None:
                break
        for part in rest.split(".") if rest else ():
            if spec is None or spec.submodule_search_locations is None:
                return None
            places = list(spec.submodule_search_locations)
            top = f"{top}.{part}"
            try:
                spec = PathFinder.find_spec(top, places)
            except KeyError:
                # A directory without __init__.py in one whose parent has not been imported: Python asks for the parent.
                spec = ModuleSpec(top, None, is_package=True)
                spec.submodule_search_locations = [os.path.join(place, part) for place in places]
        return spec


def _weighs(file: str) -> bool:
    """Whether importing it is worth a word: Python's own modules are small."""
    return installed(file) and bool({"site-packages", "dist-packages"} & set(file.split(os.sep)))


def _place(spec: ModuleSpec) -> str | None:
    """A file or directory of the module; None for what is built in."""
    if spec.origin in ("built-in", "frozen"):
        return None
    if spec.origin:
        return spec.origin
    return next(iter(spec.submodule_search_locations or ()), None)


def _absolute(module: str, package: str, level: int) -> str:
    if not level:
        return module
    parts = package.split(".") if package else []
    if level > len(parts):
        return ""
    base = ".".join(parts[: len(parts) - level + 1])
    return f"{base}.{module}" if module else base


def _main_guard(node: ast.If) -> bool:
    """`if __name__ == "__main__":`, after which nothing matters here."""
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))


# ---------------------------------------------------------------------------------------------- what may change imports


def _catches_warnings(node: ast.With) -> bool:
    """`with warnings.catch_warnings():`"""
    call = node.items[0].context_expr
    return len(node.items) == 1 and isinstance(call, ast.Call) and "catch_warnings" in ast.unparse(call.func)


def constant_variable(node: ast.stmt) -> Step | None:
    """`os.environ["A"] = "b"` and `os.environ.setdefault("A", "b")`, constants only."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and _is_environ(target.value):
            name, value = _text(target.slice), _text(node.value)
            if name is not None and value is not None:
                return ("set", name, (value,))
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and len(call.args) == 2 and not call.keywords:
        func, name, value = call.func, _text(call.args[0]), _text(call.args[1])
        ours = isinstance(func, ast.Attribute) and func.attr == "setdefault" and _is_environ(func.value)
        if ours and name is not None and value is not None:
            return ("default", name, (value,))
    return None


def _text(node: ast.expr) -> str | None:
    """What a constant text says; None where it is none."""
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def constant_filter(node: ast.stmt) -> Step | None:
    """`warnings.filterwarnings("ignore")` and `simplefilter`, with nothing but constants and built-in warnings."""
    call = node.value if isinstance(node, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return None
    if func.value.id != "warnings" or func.attr not in ("filterwarnings", "simplefilter"):
        return None
    plain = all(_plain(value) for value in [*call.args, *(word.value for word in call.keywords)])
    return ("warn", ast.unparse(call), ()) if plain else None


def setters(node: ast.AST, local: dict[str, ast.FunctionDef], depth: int = 0) -> set[str]:
    """What this statement sets of which an import might set something too: `logging`, `random`."""
    found = set()
    for part in ast.walk(node):
        func = part.func if isinstance(part, ast.Call) else None
        if not isinstance(func, (ast.Attribute, ast.Name)):
            continue
        name = func.attr if isinstance(func, ast.Attribute) else func.id
        if name in _SETTERS:
            found.add(_SETTERS[name])
        if name in local and depth < 8:
            found |= setters(local[name], without(local, name), depth + 1)
    return found


def _plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Name) and node.id.endswith("Warning") and hasattr(builtins, node.id)
    )


def _caught(handlers: list[ast.ExceptHandler]) -> str:
    """Which failures of an import these handlers catch: `Exception`, `ImportError` or none."""
    names = set()
    for handler in handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names |= {"Exception" if kind is None else ast.unparse(kind) for kind in kinds}
    if names & {"Exception", "BaseException"}:
        return "Exception"
    return "ImportError" if "ImportError" in names else ""


def _is_environ(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ" and isinstance(node.value, ast.Name)


def changes(node: ast.AST, local: dict[str, ast.FunctionDef], depth: int = 0) -> str:
    """What in this statement may change what a later import does; empty if nothing does."""
    for part in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(part, (ast.Assign, ast.Delete)):
            targets = part.targets
        elif isinstance(part, (ast.AugAssign, ast.AnnAssign)):
            targets = [part.target]
        for target in targets:
            if word := _state(target):
                return word
        func = part.func if isinstance(part, ast.Call) else None
        if isinstance(func, ast.Attribute):
            if func.attr in _CHANGERS or (func.attr == "register" and ast.unparse(func.value) == "atexit"):
                # What is registered last runs first, and imports register things too.
                return f"{func.attr}()"
            if func.attr in _MUTATORS and (word := _state(func.value)):
                return word
        elif isinstance(func, ast.Name):
            name = func.id
            if name in _CHANGERS or name in ("exec", "eval"):
                return f"{name}()"
            if name in local and depth < 8 and (word := changes(local[name], without(local, name), depth + 1)):
                return f"{name}(): {word}"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        name = node.value.func.id
        if name not in local and not hasattr(builtins, name) and not depth:
            return f"{name}()"
    return ""


def without(local: dict[str, ast.FunctionDef], name: str) -> dict[str, ast.FunctionDef]:
    """A function that calls itself is looked into once."""
    return {other: node for other, node in local.items() if other != name}


def _state(target: ast.expr) -> str:
    """`os.environ`, `sys.path` and their like, where the expression writes to one."""
    node = target.value if isinstance(target, ast.Subscript) else target
    if isinstance(node, ast.Attribute) and (
        node.attr in _STATES or (node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys")
    ):
        return ast.unparse(node)
    if isinstance(node, ast.Name) and node.id in _STATES:
        return node.id
    return ""

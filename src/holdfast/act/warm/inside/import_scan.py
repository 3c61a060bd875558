"""Finds the installed modules that a script imports, in order. It parses the script and runs none of the user's code.

Installed modules are those of the standard library and of site-packages. Only they are worth an import before the fork.
The user's modules are parsed too, for *their* imports. Parsing stops at the first statement that may change the effect
of a later import, because the script must run that statement first.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import tokenize
from importlib.machinery import ModuleSpec, PathFinder

from .fork_safety import installed

#: One step of the script: (`import`, module, imported names); (`set` or `default`, variable, (value,)) for a constant
#: in `os.environ`; (`warn`, call, ()) for a warning filter; (`sets`, `logging` or `random`, ()) for a setting that
#: imports may change too.
Step = tuple[str, str, tuple[str, ...]]
#: The place of a step: file, line, module name, and the caught exception (`Exception`, `ImportError` or empty).
Place = tuple[str, int, str, str]

MOST_FILES = 2_000
#: Functions that change the effect of later imports; from gevent, eventlet, matplotlib, pyximport, dotenv and the like.
_CHANGERS = frozenset({
    "addaudithook", "addsitedir", "captureWarnings", "chdir", "filterwarnings", "fork", "install",
    "install_import_hook", "load_dotenv", "monkey_patch", "patch_all", "putenv", "resetwarnings",
    "set_default_device", "set_default_dtype", "set_default_tensor_type", "set_event_loop_policy", "set_start_method",
    "setdefaulttimeout", "setlocale", "simplefilter", "start", "unsetenv", "use",
})  # fmt: skip
_STATES = frozenset({"argv", "environ", "environb", "meta_path", "modules", "path_hooks", "stderr", "stdout"})
#: Functions that set the state of logging or of random generators. An import that sets the same state must not run
#: before them.
_SETTERS = {
    **dict.fromkeys(("basicConfig", "dictConfig", "fileConfig", "addHandler"), "logging"),
    **dict.fromkeys(("seed", "manual_seed", "seed_everything", "set_seed"), "random"),
}
_MUTATORS = frozenset({
    "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update", "reverse", "sort",
})  # fmt: skip


class ReadingStopped(Exception):
    """Raised if parsing stops at a statement. The message describes the statement."""


class Finder:
    """Parses a script, and the user's modules that it imports. `note`: why parsing stopped early."""

    def __init__(self, first_path: str | None) -> None:
        """`first_path`: the entry that the interpreter will put first in `sys.path`; None: none."""
        self.steps: list[Step] = []
        #: The place in the source of each step, in the order of `steps`.
        self.places: list[Place] = []
        #: The path of the file that will run as `__main__`.
        self.main = ""
        self._here: Place = ("", 0, "", "")
        #: The user's files that were parsed. After a change in one of them the found imports may be wrong.
        self.files: list[str] = []
        self.note = ""
        #: Packages that the main file imports after the point where parsing stopped. Each worker imports them itself.
        self.left: list[str] = []
        self._path = [*([first_path] if first_path is not None else []), *sys.path]
        self._seen: set[str] = set()
        #: The line of the main file that is being parsed.
        self._at = 0

    def script(self, file: str) -> None:
        self.main = file
        self._begin(lambda: self._read(file, "", "__main__"))

    def module(self, name: str) -> None:
        """Find the imports of `python -m NAME`: first the module's parent packages, then its own imports."""
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
        """Return the installed packages that the main file imports at its top level after parsing stopped."""
        if not self.main:
            return []  # return no packages: parsing stopped in a parent package of the main module
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

    # ----------------------------------------------------------------------------------- methods that parse source text

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
            return  # stop parsing this file, because the worker will raise the same error
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
                continue  # skip these filters, because the end of the `with` restores the old ones
            elif (step := constant_variable(node) or constant_filter(node)) is not None:
                self._add(step)
            elif what := changes(node, local):
                raise ReadingStopped(f"{where} ({what}) may change what is imported after it")
            else:
                for what in setters(node, local):
                    self._add(("sets", what, ()))

    # ---------------------------------------------------------------------------------------- methods that find modules

    def _import(self, name: str, wanted: tuple[str, ...]) -> None:
        spec = self._spec(name.partition(".")[0])
        if spec is None:
            return  # skip this module, because it is not installed: the script will fail, or handle that
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
        """Find a module's spec without importing its parent packages."""
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
                # Build the spec here: for a namespace package inside a package PathFinder raises KeyError, because the
                # parent is not imported.
                spec = ModuleSpec(top, None, is_package=True)
                spec.submodule_search_locations = [os.path.join(place, part) for place in places]
        return spec


def _weighs(file: str) -> bool:
    """Return whether the module's import may be slow: the module is in site-packages, not in the standard library."""
    return installed(file) and bool({"site-packages", "dist-packages"} & set(file.split(os.sep)))


def _place(spec: ModuleSpec) -> str | None:
    """Return a file or directory of the module, or None if it is built in."""
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
    """Return whether the test contains `__name__`, as in `if __name__ == "__main__":`. The body of such an `if` is
    skipped.
    """
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))


# ------------------------------------------------------------------------ functions that detect side effects of imports


def _catches_warnings(node: ast.With) -> bool:
    """Return whether this is `with warnings.catch_warnings():`."""
    call = node.items[0].context_expr
    return len(node.items) == 1 and isinstance(call, ast.Call) and "catch_warnings" in ast.unparse(call.func)


def constant_variable(node: ast.stmt) -> Step | None:
    """Return the step for `os.environ["A"] = "b"` or `os.environ.setdefault("A", "b")` with constants, or None for any
    other statement."""
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
    """Return the value of a string constant, or None if the node is not one."""
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def constant_filter(node: ast.stmt) -> Step | None:
    """Return the step for `warnings.filterwarnings` or `simplefilter`, if all arguments are constants or built-in
    warnings."""
    call = node.value if isinstance(node, ast.Expr) else None
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name):
        return None
    if func.value.id != "warnings" or func.attr not in ("filterwarnings", "simplefilter"):
        return None
    plain = all(_plain(value) for value in [*call.args, *(word.value for word in call.keywords)])
    return ("warn", ast.unparse(call), ()) if plain else None


def setters(node: ast.AST, local: dict[str, ast.FunctionDef], depth: int = 0) -> set[str]:
    """Return which states (`logging`, `random`) this statement sets. Imports may set them too. `local`: the functions
    that the file has defined so far, by name. `depth`: the number of followed calls.
    """
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
    """Return which errors of an import these handlers catch: `Exception`, `ImportError` or ""."""
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
    """Return the part of this statement that may change the effect of a later import; "" if there is none. `local`: the
    functions that the file has defined so far, by name. `depth`: the number of followed calls.
    """
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
                # atexit runs the last registered function first, and imports register functions too, so their order
                # counts.
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
    """Return `local` without `name`, so that a recursive function is analysed once."""
    return {other: node for other, node in local.items() if other != name}


def _state(target: ast.expr) -> str:
    """Return the name of the global state (`os.environ`, `sys.path` and the like) that the target sets, or ""."""
    node = target.value if isinstance(target, ast.Subscript) else target
    if isinstance(node, ast.Attribute) and (
        node.attr in _STATES or (node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys")
    ):
        return ast.unparse(node)
    if isinstance(node, ast.Name) and node.id in _STATES:
        return node.id
    return ""

"""`python -m holdfast_testing.house [--write]`: figures of the source tree, which tell how costly it is to read.

They are measured, but no test limits them, because a limit becomes a target that files are written up to. `--write`
puts them into the table of docs/internals/architecture.md.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SRC = Path(__file__).parents[1] / "holdfast"
PAGE = SRC.parents[1] / "docs" / "internals" / "architecture.md"
WALK = PAGE.with_name("walk.md")
MANY_PARAMETERS = 8
_NO_CODE = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
})  # fmt: skip


@dataclass(frozen=True)
class SourceFile:
    """A file of the package; `place` is its path in the package."""

    place: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The folder, such as `node` for node/agent/main.py; for a file outside of folders, its own name."""
        return self.place.parts[0].removesuffix(".py")

    @property
    def module(self) -> str:
        return ".".join(("holdfast", *self.place.with_suffix("").parts)).removesuffix(".__init__")

    @cached_property
    def code_lines(self) -> int:
        """The number of lines that are neither blank, nor comments, nor docstrings."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return len(lines)

    def imports(self, *, lazy: bool) -> Iterator[str]:
        """Yield the modules of holdfast that the file imports at its top, or with `lazy` inside functions; not the
        imports that only type checkers need."""
        package = self.module.split(".") if self.place.name == "__init__.py" else self.module.split(".")[:-1]
        for node in _inside_functions(self.tree) if lazy else _at_the_top(self.tree.body):
            match node:
                case ast.Import(names=names):
                    found = [alias.name for alias in names]
                case ast.ImportFrom(module=module, level=level, names=names):
                    base = package[: len(package) + 1 - level] if level else []
                    whole = ".".join([*base, *([module] if module else [])])
                    found = [f"{whole}.{alias.name}" for alias in names]
                case _:
                    continue
            yield from (name for name in found if name.split(".")[0] == "holdfast")


def _inside_functions(tree: ast.Module) -> Iterator[ast.stmt]:
    seen: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in seen:
                    seen.add(id(node))
                    yield node


def _at_the_top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.If() | ast.Try():
                yield from _at_the_top([*node.body, *node.orelse])
            case _:
                yield node


def source_files(root: Path = SRC) -> list[SourceFile]:
    """Return every file of the package in the wheel."""
    return [SourceFile(path.relative_to(root), path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))]


def _largest(counts: Counter[str]) -> str:
    name, lines = counts.most_common(1)[0]
    return f"{lines / 1000:.1f}k ({name})"


def _repeats(names: Iterable[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def circles(files: list[SourceFile]) -> int:
    """Return the number of sets of files that import each other in a circle while they load."""
    by_module = {file.module: file.module for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        found = graph[file.module] = set()
        for name in file.imports(lazy=False):
            if module := by_module.get(name) or by_module.get(name.rpartition(".")[0]):
                found.add(module)
        found.discard(file.module)
    reach: dict[str, set[str]] = {}
    for module in graph:
        seen, to_see = set[str](), [module]
        while to_see:
            fresh = graph[to_see.pop()] - seen
            seen |= fresh
            to_see += fresh
        reach[module] = seen
    members = {frozenset(other for other in reach[module] if module in reach[other]) for module in graph}
    return sum(len(circle) > 1 for circle in members)


def wide_constructors(files: list[SourceFile]) -> int:
    """Return the number of `__init__` functions with eight parameters or more besides `self`."""
    count = 0
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                parameters = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                count += len(parameters) - 1 >= MANY_PARAMETERS
    return count


def walked_files(files: list[SourceFile], page: str) -> list[SourceFile]:
    """Return the files that the documentation page with the code walk names."""
    named = set(re.findall(r"^\d+\. `([\w/]+\.py)`", page, re.MULTILINE))
    return [file for file in files if str(file.place) in named]


def figures(files: list[SourceFile], walk: str) -> list[tuple[str, str]]:
    """Return the rows of the table of figures: a name, and its figure as text."""
    rooms: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for file in files:
        rooms[file.room] += file.code_lines
        folders[f"{file.place.parent}/"] += file.code_lines
    classes = [node.name for file in files for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef)]
    lazy = sum(len(list(file.imports(lazy=True))) for file in files if file.room != "cli")
    walked = walked_files(files, walk)
    docstrings_too = sum(
        1 for file in files for line in file.text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    )
    return [
        ("files", str(len(files))),
        ("lines of code", f"{sum(rooms.values()) / 1000:.1f}k"),
        ("lines of code and docstrings", f"{docstrings_too / 1000:.1f}k"),
        ("largest room", _largest(rooms)),
        ("largest folder, without the folders in it", _largest(folders)),
        ("circles of files that import each other", str(circles(files))),
        ("files that the walk of a death names, and their lines", f"{len(walked)}; {_lines(walked)}"),
        ("imports inside functions, outside of `cli`", str(lazy)),
        ("constructors with eight parameters or more", str(wide_constructors(files))),
        ("class names that are used twice", str(_repeats(classes))),
        ("file names that are used twice", str(_repeats(f.place.name for f in files if f.place.name != "__init__.py"))),
    ]


def _lines(files: Iterable[SourceFile]) -> str:
    return f"{sum(len(file.text.splitlines()) for file in files):,}"


def table(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(["| figure | now |", "|---|---|", *(f"| {name} | {figure} |" for name, figure in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m holdfast_testing.house")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    chosen = parser.parse_args()
    made = table(figures(source_files(), WALK.read_text(encoding="utf-8")))
    print(made)
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition("<!-- holdfast_testing.house -->")
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise SystemExit(f"{PAGE}: expected `<!-- holdfast_testing.house -->` and `<!-- end -->` around the table")
        PAGE.write_text(f"{before}<!-- holdfast_testing.house -->\n\n{made}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What a start leaves out is there for whoever wants it. Each case is a Python of its own: imports happen once."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = {"re", "ctypes", "fnmatch", "ntpath", "msgspec.inspect", "holdfast.loop.jobfile", "holdfast.loop.telling"}
LATER = "textwrap", "platform", "urllib.parse", "typing_extensions", "re", "fnmatch", "ntpath", "msgspec.inspect"

LIGHTLY = "from holdfast.show.cli._light import import_lightly; import_lightly()"


def tell(code: str) -> str:
    lines = ["import sys", LIGHTLY, code]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.real
def test_what_hardly_anybody_uses_is_not_imported() -> None:
    assert tell(f"print([name for name in {LATER!r} if name in sys.modules])") == "[]"
    assert tell("print('msgspec' in sys.modules, 'pathlib' in sys.modules)") == "True True"


SCHEMA = (
    """
import msgspec, uuid
class A(msgspec.Struct):
    """
    "'one two'"
    """
    a: uuid.UUID
print(msgspec.json.schema(A)["$defs"]["A"]["description"], msgspec.json.encode(A(uuid.UUID(int=5))).decode())
"""
)


@pytest.mark.real
def test_what_a_start_imports_does_not_bring_it_in_again() -> None:
    assert tell(f"import holdfast.loop.launch, holdfast.loop.run; print({START!r} & set(sys.modules))") == "set()"


@pytest.mark.real
def test_a_start_compiles_no_python() -> None:
    """The first `compile()` makes the types of the syntax tree: 2 ms. A NamedTuple calls it for each field."""
    code = """
import builtins
real, seen = builtins.compile, []
def compile(source, *words, **more):
    if isinstance(source, str):  # else it is a module without its .pyc
        seen.append(source)
    return real(source, *words, **more)
builtins.compile = compile
import holdfast.loop.launch, holdfast.loop.run, holdfast.show.cli._run_words
print(len(seen), end=" ")
import typing
typing.List["int"]
print(seen)"""
    lines = code.splitlines()
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines[:7], LIGHTLY, *lines[7:]])],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "0 ['int']"


PATTERN = """
import msgspec, typing
class A(msgspec.Struct):
    a: typing.Annotated[str, msgspec.Meta(pattern="^x")]
print(msgspec.convert({"a": "x"}, A), end="")
try:
    msgspec.convert({"a": "y"}, A)
except msgspec.ValidationError as error:
    print(str(error)[-8:])
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("import pathlib; print(pathlib.PurePosixPath('/a b').as_uri())", "file:///a%20b"),
        ("import urllib.parse; print(urllib.parse.urlsplit('http://[::1]/').hostname)", "::1"),
        ("import platform; print(platform.system(), bool(platform.machine()))", "Linux True"),
        ("import textwrap; print(textwrap.dedent('  a'))", "a"),
        ("import uuid; print(uuid.UUID(int=5), uuid.uuid1().version)", "00000000-0000-0000-0000-000000000005 1"),
        (
            "import pathlib; print(pathlib.PurePath('/a/b.py').match('*.p?'), list(pathlib.Path('/').glob('no*pe')))",
            "True []",
        ),
        ("import pathlib; print(pathlib.PureWindowsPath('C:/a').drive)", "C:"),
        ("import re, typing; print(re.sub('a+', 'b', 'aac'), typing.Pattern[str].__origin__ is re.Pattern)", "bc True"),
        ("import re._parser, re, typing; print(typing.Match[str].__origin__ is type(re.match('', '')))", "True"),
        (
            "import datetime; print(datetime.datetime(2026, 1, 2).strftime('%Y'), sorted(datetime.__all__)[-1])",
            "2026 tzinfo",
        ),
        ("import datetime, pickle; print(pickle.loads(pickle.dumps(datetime.date(2026, 1, 2))))", "2026-01-02"),
        ("import msgspec; print(msgspec.inspect.type_info(int).gt, len(msgspec.msgpack.encode(1)))", "None 1"),
        ("import msgspec; print(msgspec.toml.decode('a = 1'), msgspec.yaml.encode.__name__)", "{'a': 1} encode"),
        (PATTERN, "A(a='x')at `$.a`"),
        (SCHEMA, 'one two {"a":"00000000-0000-0000-0000-000000000005"}'),
    ],
    ids=[
        "pathlib",
        "urllib",
        "platform",
        "textwrap",
        "uuid",
        "glob",
        "windows",
        "re",
        "parser",
        "datetime",
        "pickle",
        "inspect",
        "toml",
        "pattern",
        "msgspec",
    ],
)
def test_everything_works_as_ever(code: str, answer: str) -> None:
    assert tell(code) == answer


@pytest.mark.real
def test_the_guard_is_made_before_anything_large_is_imported() -> None:
    """`guarded` forks; what the command line has imported by then is what the guard holds."""
    code = "import holdfast.show.cli, holdfast.loop.guarding; print(sorted(set(sys.modules) & LARGE))"
    large = (
        "LARGE = {'typing', 're', 'ctypes', 'msgspec', 'pathlib', 'sqlite3', 'socket', 'click', 'holdfast.model.jobs'}"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {large}; {code}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]", done.stderr

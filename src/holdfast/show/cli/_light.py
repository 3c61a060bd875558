"""What a start imports and hardly ever uses, left out: half of what msgspec and pathlib cost goes into that."""

from __future__ import annotations

import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LATER: dict[str, tuple[str, ...]] = {
    "textwrap": (),
    "platform": (),
    "urllib.parse": ("quote_from_bytes",),
    "fnmatch": (),
    "ntpath": (),
    "re": ("compile",),
    "msgspec.inspect": (),
    "msgspec._json_schema": ("schema", "schema_components"),
    "msgspec.msgpack": (),
    "msgspec.toml": (),
    "msgspec.yaml": (),
}
"""What comes when it is used, and the functions that its users take out of it while they are imported."""


class _Postponed(ModuleType):
    """Stands in for a module: imports it when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by the import system, of every module
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        __import__(self.__name__)
        return getattr(sys.modules[self.__name__], name)

    def postpone(self, name: str) -> None:
        """Have a function of this name here already."""

        def function(*words: Any, **more: Any) -> Any:
            return self.__getattr__(name)(*words, **more)

        self.__dict__[name] = function


class _Accepted:
    """A `typing.ForwardRef` that looks at nothing."""

    def __init__(self, *words: object, **more: object) -> None: ...


def import_lightly() -> None:
    """Import msgspec and pathlib, and let those of their own imports wait that few programs come to need.

    - typing_extensions: where it is installed (torch brings it), msgspec takes from it what Python has had since 3.11,
      and pays for it with an import (of `inspect` too) as long as its own;
    - textwrap, and msgspec's `inspect` and `_json_schema`, are for JSON schemas; msgpack, toml, yaml are other formats;
    - urllib.parse is for pathlib's URLs, fnmatch for its globs, ntpath for Windows;
    - platform: uuid, which msgspec imports, asks it for the system's name and nothing else;
    - re: typing wants the names of two types, and msgspec one function;
    - typing.ForwardRef: msgspec tries it once, and the first `compile()` makes a hundred types of the syntax tree;
    - datetime exists twice, in Python and in C; before Python 3.12 the first is made, and thrown away for the second.

    Afterwards all of them are imported as ever by whoever wants them.
    """
    if "msgspec" in sys.modules:
        return
    instead: dict[str, ModuleType | None] = {"typing_extensions": None}  # Python's own sign for "import nothing here"
    for name, functions in _LATER.items():
        instead[name] = later = _Postponed(name)
        for function in functions:
            later.postpone(function)
    vars(instead["platform"])["system"] = lambda: os.uname().sysname
    vars(instead["re"]).update(_types_of_re())
    wanted = {name: module for name, module in instead.items() if name not in sys.modules}
    sys.modules.setdefault("datetime", _datetime_in_c())
    sys.modules.update(wanted)  # type: ignore[arg-type]  # None is allowed there, and not in its annotation
    try:
        import pathlib
        import typing

        forward = typing.ForwardRef
        typing.ForwardRef = _Accepted  # type: ignore[misc,assignment]  # a stand-in, taken back below
        try:
            import msgspec  # noqa: F401 - this and pathlib for their effect: they are in sys.modules from here on
        finally:
            typing.ForwardRef = forward  # type: ignore[misc]  # the real one
    finally:
        for name, module in wanted.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
    assert pathlib


def _types_of_re() -> dict[str, type]:
    """`re.Pattern` and `re.Match`, as `re` gets them, from a pattern that is compiled already: it matches nothing."""
    import _sre  # type: ignore[import-not-found]  # C, without a stub

    pattern = _sre.compile("", 0, [1], 0, {}, ())
    return {"Pattern": type(pattern), "Match": type(pattern.match(""))}


def _datetime_in_c() -> ModuleType:
    import _datetime  # type: ignore[import-not-found]  # C, without a stub

    module = ModuleType("datetime", _datetime.__doc__)
    names = [name for name in vars(_datetime) if not name.startswith("__")]
    vars(module).update({name: getattr(_datetime, name) for name in names}, __all__=names)
    return module

"""What a start imports and hardly ever uses, left out: a third of what msgspec and pathlib cost goes into that."""

from __future__ import annotations

import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Postponed(ModuleType):
    """Stands in for a module: imports it when something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)  # asked by the import system, of every module
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        __import__(self.__name__)
        return getattr(sys.modules[self.__name__], name)


def import_lightly() -> None:
    """Import msgspec and pathlib, and let those of their own imports wait that few programs come to need.

    - typing_extensions: where it is installed (torch brings it), msgspec takes from it what Python has had since 3.11,
      and pays for it with an import (of `inspect` too) as long as its own;
    - textwrap: for msgspec's JSON schemas, and urllib.parse: for pathlib's URLs. They come when they are used;
    - platform: uuid, which msgspec imports, asks it for the system's name and nothing else.

    Afterwards all of them are imported as ever by whoever wants them.
    """
    platform, parse = _Postponed("platform"), _Postponed("urllib.parse")
    platform.__dict__["system"] = lambda: os.uname().sysname
    parse.__dict__["quote_from_bytes"] = _quote_from_bytes
    instead: dict[str, ModuleType | None] = {
        "typing_extensions": None,  # Python's own sign for "import nothing here"
        "textwrap": _Postponed("textwrap"),
        "urllib.parse": parse,
        "platform": platform,
    }
    wanted = {name: module for name, module in instead.items() if name not in sys.modules}
    if "msgspec" in sys.modules:
        return
    sys.modules.update(wanted)  # type: ignore[arg-type]  # None is allowed there, and not in its annotation
    try:
        import pathlib

        import msgspec  # noqa: F401 - both for their effect: they are in sys.modules from here on
    finally:
        for name, module in wanted.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
    assert pathlib


def _quote_from_bytes(*words: Any, **more: Any) -> str:
    """What pathlib takes out of urllib.parse by name, for `Path.as_uri`."""
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(*words, **more)

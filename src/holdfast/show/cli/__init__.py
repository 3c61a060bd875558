"""The command line: one file a verb, imported only when that verb is typed; click, only when it is needed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

from holdfast.errors import HoldfastError

VERBS: dict[str, str] = {
    "run": "Run a job as one gang: check, launch, explain, decide, remember.",
    "explain": "Say why a job died, from any log of any launcher.",
    "exits": "List, search and lint the catalogue of exits.",
    "check": "Run pre-checks here and now.",
    "devices": "Show every device's standing, and why.",
    "release": "Give a held device back to work.",
    "faults": "Report, list, lint and replay device faults.",
    "jobs": "List the jobs this machine remembers.",
    "show": "Show one job: attempts, causes, decisions.",
    "logs": "Print a job's logs.",
    "stop": "Ask a running job to stop, with a reason.",
    "config": "Show each setting and where it came from.",
}
"""Every verb and its one line; `holdfast.show.cli.<verb>` holds its `command`. Help needs no verb's imports."""


def main(argv: Sequence[str] | None = None) -> None:
    """The console script. Our own exceptions become one message and their exit status; 1 is always a bug of ours."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _main(words)
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        status = error.exit_status
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # `holdfast jobs | head`: the reader has seen enough. Python would complain again while flushing at exit.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status if isinstance(status, int) else 0)


def _main(words: list[str]) -> object:
    _without_backports()
    if words[:1] == ["run"]:
        # Nothing that is imported is garbage; looking for some among it costs a start several milliseconds.
        gc.disable()
        from holdfast.show.cli._run_words import read, unheeded

        if (given := read(words[1:])) is not None:
            from holdfast.loop.launch import start

            return start({**given, "unheeded": unheeded(given)})
    if words[:1] == ["explain"]:
        gc.disable()  # the same; and what a report is made of goes with the process
        from holdfast.show.cli._explaining import explaining
        from holdfast.show.cli._explaining import read as read_explain

        if (asked := read_explain(words[1:])) is not None:
            explaining(**asked)
            return 0
    from holdfast.show.cli._group import typed

    return typed(words)


def _without_backports() -> None:
    """Import msgspec as if typing_extensions were not installed.

    Where it is (torch brings it), msgspec takes from it what Python has had since 3.11, and pays for it with an import
    (of `inspect` too) as long as its own. Every start of `holdfast run` would.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # Python's own sign for "import nothing here"
    try:
        import msgspec  # noqa: F401 - for its effect: it is in sys.modules from here on
    finally:
        del sys.modules["typing_extensions"]


def __getattr__(name: str) -> Any:
    if name == "cli":
        from holdfast.show.cli._group import cli

        return cli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

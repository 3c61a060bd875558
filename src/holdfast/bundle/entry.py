"""The first module that the launcher runs: it restores the environment and calls the command line."""

from __future__ import annotations

import importlib
import sys

from holdfast.bundle.hidden_variables import give_back

TYPE_CHECKING = False  # importing `typing` takes longer than everything else in this module
if TYPE_CHECKING:
    from collections.abc import Sequence

#: The module whose `main` gets the arguments, by the launcher's name.
#:
#: The modules are imported late, because the command line imports this package for `prepare`.
HANDS_ON = {"run": "holdfast.cli.container_task", "holdfast": "holdfast.cli"}


def main(argv: Sequence[str]) -> None:
    """Run the command. `argv`: the launcher's name, and its arguments."""
    name, *words = argv
    give_back("holdfast")
    sys.argv = [name, *words]
    importlib.import_module(HANDS_ON[name]).main(words)


if __name__ == "__main__":
    main(sys.argv[1:])

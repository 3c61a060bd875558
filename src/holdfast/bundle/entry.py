"""The first Python module that the launcher runs. It restores the environment and calls the command line."""

from __future__ import annotations

import importlib
import sys

from holdfast.bundle.hidden_variables import give_back

TYPE_CHECKING = False  # importing `typing` takes longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Sequence

#: Maps the launcher's name to the module whose `main` gets the arguments.
#:
#: The modules are imported late, because the command line itself imports this package for `prepare`.
MODULE_OF_COMMAND = {"run": "holdfast.cli.container_task", "holdfast": "holdfast.cli"}


def main(argv: Sequence[str]) -> None:
    """Run the command. `argv`: the launcher's name, then its arguments."""
    name, *words = argv
    give_back("holdfast")
    sys.argv = [name, *words]
    importlib.import_module(MODULE_OF_COMMAND[name]).main(words)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The first module that the launcher starts: it restores the environment and calls the command line."""

from __future__ import annotations

import importlib
import sys

from holdfast.bundle.hidden_variables import give_back

TYPE_CHECKING = False  # `typing` takes longer than everything else here
if TYPE_CHECKING:
    from collections.abc import Sequence

#: By the launcher's name, the module whose `main` gets the arguments.
#:
#: It is named here, and not imported above: the command line has `prepare`, which has this package.
HANDS_ON = {"run": "holdfast.cli.container_task", "holdfast": "holdfast.cli"}


def main(argv: Sequence[str]) -> None:
    """`argv`: the launcher's name, and its arguments."""
    name, *words = argv
    give_back("holdfast")
    sys.argv = [name, *words]
    importlib.import_module(HANDS_ON[name]).main(words)


if __name__ == "__main__":
    main(sys.argv[1:])

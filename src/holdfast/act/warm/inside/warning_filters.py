"""Handles the warning filters that a script sets between its imports."""

from __future__ import annotations

TYPE_CHECKING = False
# for type checkers only: an import of `typing` at run time would change which modules the script finds imported
if TYPE_CHECKING:
    from typing import Any


class Filters:
    """Sets the script's warning filters for the imports after them, and removes the filters at the end."""

    def __init__(self) -> None:
        self._module: Any = None
        #: The filters from before the script's first one.
        self._before: list[Any] = []
        self._of_script: list[Any] = []

    def do(self, call: str) -> None:
        """Run one call of `warnings` from the script, and remember the filters that it adds."""
        import warnings

        if self._module is None:
            self._module, self._before = warnings, list(warnings.filters)
        had = list(warnings.filters)
        eval(call, {"warnings": warnings})
        self._of_script += [each for each in warnings.filters if each not in had]

    def take_back(self) -> None:
        """Remove the script's filters, because the script will set them itself. The filters that imports added stay,
        before the original ones.
        """
        if self._module is None:
            return
        now = list(self._module.filters)
        of_imports = [each for each in now if each not in self._before and each not in self._of_script]
        self._module.filters[:] = [*of_imports, *(each for each in self._before if each in now)]
        mutated = getattr(self._module, "_filters_mutated", None)
        if mutated is not None:
            mutated()

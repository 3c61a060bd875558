"""Filters of warnings that a script sets between its imports."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would be one more module that the script finds imported
    from typing import Any


class Filters:
    """Filters of warnings that the script sets between its imports: in force for those behind them, and taken back."""

    def __init__(self) -> None:
        self._module: Any = None
        self._before: list[Any] = []
        """All that there were before the first of the script's."""
        self._of_script: list[Any] = []

    def do(self, call: str) -> None:
        import warnings

        if self._module is None:
            self._module, self._before = warnings, list(warnings.filters)
        had = list(warnings.filters)
        eval(call, {"warnings": warnings})
        self._of_script += [each for each in warnings.filters if each not in had]

    def take_back(self) -> None:
        """Until the script itself sets them, only those of the imports are there, before those that were."""
        if self._module is None:
            return
        now = list(self._module.filters)
        of_imports = [each for each in now if each not in self._before and each not in self._of_script]
        self._module.filters[:] = [*of_imports, *(each for each in self._before if each in now)]
        mutated = getattr(self._module, "_filters_mutated", None)
        if mutated is not None:
            mutated()

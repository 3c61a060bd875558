"""Judges whether an attempt is idle for too long, and prints a warning with the ranks' stacks.

The module is separate, because the start of a job does not need it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.decide.queries.idle_warning import IdleWarning
from holdfast.explain.causes.system_cause import stacks
from holdfast.model.evidence import HangEvidence
from holdfast.model.human_format import duration
from holdfast.safe_files import replace_file


class IdleJudge(IdleWarning):
    """Judges whether one attempt is idle. `after_s`: seconds without a sign of life until the warning."""

    def warn(self, found: HangEvidence, say: Callable[[str], None], folder: Path) -> None:
        """Write the stacks in the evidence `found` to files in `folder`, and print the warning with `say`."""
        path = folder / f"attempt-{found.attempt}-stacks.txt"
        text = "\n\n".join(f"{item.text}\n({item.source or 'stack'})" for item in stacks(found))
        kept = f"; stacks: {path}"
        try:
            replace_file(path, f"{found.why}\n\n{text}\n".encode("utf-8", "replace"))
        except OSError as error:
            kept = f"; the stacks could not be written to {path}: {error.strerror}"
        say(
            f"attempt {found.attempt}: for {duration(found.silent_s)} no rank has printed, told a step or changed its "
            f"use of CPU: {found.why}. Nothing is stopped (--hang-timeout N ends such an attempt){kept}"
        )

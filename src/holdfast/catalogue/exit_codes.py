"""The blocks of final exit codes: the codes that a row may have, and the meanings of codes without a row."""

from __future__ import annotations

from holdfast.catalogue.exit_rows import ExitRow, load
from holdfast.model.exit_report import Blame, Rerun, signal_name
from holdfast.model.phrases import Phrase

#: Codes that a worker may choose. 200 to 209 mean that another attempt may help; 210 to 219 mean that it cannot.
CONTRACT = range(200, 220)

#: Codes 128 + N for the signals N = 1 to 31. Real-time signals have no code, because it would be in the hardware block.
SIGNALS = range(128 + 1, 128 + 32)

#: Maps a blame to the codes that a row with this blame may have.
BLOCKS: dict[Blame, tuple[range, ...]] = {
    Blame.HARDWARE: (range(160, 180),),
    Blame.NETWORK: (range(180, 190),),
    Blame.STORAGE: (range(180, 190),),
    # The site may be responsible for an external service, such as a licence server or a registry.
    Blame.EXTERNAL: (range(180, 190), range(190, 200)),
    Blame.PLATFORM: (range(190, 200), range(251, 255)),
    Blame.WORKLOAD: (range(220, 250),),
    Blame.OPERATOR: (range(250, 251),),
    Blame.UNKNOWN: (range(160, 200), range(220, 255)),
}


def in_words(blocks: tuple[range, ...]) -> str:
    """Format blocks of codes: `160 to 179`, `190 to 199 or 251 to 254`, `250`."""
    return " or ".join(f"{b.start} to {b.stop - 1}" if len(b) > 1 else str(b.start) for b in blocks)


def misfits(row: ExitRow, known: ExitRow | None = None) -> list[tuple[str, str]]:
    """Return the name of each rule that a catalogue row breaks, with a message about the mistake.

    Return [] if the row is valid.

    known: the built-in row of the same failure class, or None. `row` may keep the code of `known`.
    """
    found = []
    if (known is None or row.code != known.code) and (why := _misplaced(row)):
        found.append(("bad-code", f"{why}; blame {row.blame} has the codes {in_words(BLOCKS[row.blame])}"))
    if not row.solution.strip():
        found.append(("empty-solution", "solution is empty: say what the reader should do"))
    return found


def _misplaced(row: ExitRow) -> str:
    if row.code in CONTRACT:
        return f"code {row.code} is left to the workers' own contract (200 to 219)"
    if row.code == 0:
        return "code 0 means success, and this row explains a failure"
    if row.code in range(128, 160):
        return f"code {row.code} stands for a signal (128 + its number)"
    if not 0 < row.code < 255:
        return f"code {row.code} is no code of a row"
    if not any(row.code in block for block in BLOCKS[row.blame]):
        return f"code {row.code} lies outside the block of its blame"
    return ""


def special(code: int) -> ExitRow | None:
    """Return a row that explains an exit code of no failure class, or None. Such codes are holdfast's own codes, codes
    of signals, and codes that a worker may choose.
    """
    if code == 1:
        return ExitRow(
            phrase="HoldfastBug",
            code=1,
            blame=Blame.PLATFORM,
            rerun=Rerun.UNKNOWN,
            what="holdfast itself failed: a bug of holdfast, not of the job",
            solution="Report the bug with the traceback that holdfast printed and with the job's report.json.",
        )
    if code == 2:
        return ExitRow(
            phrase="BadUsage",
            code=2,
            blame=Blame.WORKLOAD,
            rerun=Rerun.NEVER,
            what="the command line, a setting or the job file is wrong, and no worker was started",
            solution="Read holdfast's message: it names the option or the line and ends with a command to try.",
        )
    if code in SIGNALS:
        number = code - 128
        name = signal_name(number)
        killed = load().row(Phrase.KILLED_BY_SIGNAL)
        return ExitRow(
            phrase=Phrase.KILLED_BY_SIGNAL,
            code=code,
            blame=killed.blame,
            rerun=killed.rerun,
            what=f"{name} (signal {number}) ended the worker, or holdfast itself, and nothing says why",
            reason=killed.reason,
            solution=killed.solution,
        )
    if code in CONTRACT:
        permanent = code >= 210
        helps = "cannot help" if permanent else "may help"
        return ExitRow(
            phrase=Phrase.USER_EXCEPTION,
            code=code,
            blame=Blame.WORKLOAD,
            rerun=Rerun.NEVER if permanent else Rerun.LATER,
            what=f"the worker chose this status: by its contract with holdfast another attempt {helps}",
            solution="Read the program's last lines: it chose this status on purpose.",
        )
    asked_for = 160 <= code <= 199 or 220 <= code <= 254
    if asked_for and not any(row.code == code for row in load().rows):
        return ExitRow(
            phrase="AskedByComponent",
            code=code,
            blame=Blame.UNKNOWN,
            rerun=Rerun.UNKNOWN,
            what="no exit of holdfast's own: a component asked for it with its stop request, or a row of yours has it",
            solution="Read the report's phrase and reason (holdfast show JOB): they are the component's own.",
        )
    return None


def signal_code(number: int) -> int:
    """Return the final code of a worker that a signal killed for an unknown reason: 128 + `number`.

    For signals above 31 the code is SIGKILL's, 137.
    """
    return 128 + number if 128 + number in SIGNALS else 137


_OF_BLAME = {
    Blame.HARDWARE: Phrase.ACCELERATOR_FAULT,
    Blame.NETWORK: Phrase.NETWORK_UNREACHABLE,
    Blame.STORAGE: Phrase.STORAGE_IO_ERROR,
    Blame.EXTERNAL: Phrase.HUB_UNAVAILABLE,
    Blame.PLATFORM: Phrase.SCHEDULER_ERROR,
    Blame.WORKLOAD: Phrase.USER_EXCEPTION,
    Blame.OPERATOR: Phrase.STOPPED_BY_OPERATOR,
    Blame.UNKNOWN: Phrase.UNEXPLAINED,
}


def code_of(blame: Blame) -> int:
    """Return the final exit code for a failure class of another system: the code of the most general built-in class
    with the same blame."""
    return load().row(_OF_BLAME[blame]).code

"""The page of pre-checks: the last result of each check on each node, and its earlier results."""

from __future__ import annotations

from collections import defaultdict

from holdfast.model.noun_base import Noun
from holdfast.web.journal_cache import REMEMBERED
from holdfast.web.page_parts import Page, PageRequest

#: Limit on the nodes shown. Nodes with a failed check come first, then the nodes that were checked last.
MOST_NODES = 40
#: Maximum number of runs in a check's trend (the row of its results).
TREND = 8


class Run(Noun, frozen=True, kw_only=True):
    """One run of one pre-check before an attempt."""

    at: float
    state: str
    message: str
    took_s: float
    job: str
    href: str


class Cell(Noun, frozen=True, kw_only=True):
    """The runs of one check on one node, the last run first."""

    node: str
    check: str
    runs: tuple[Run, ...]


class Checks(Noun, frozen=True, kw_only=True):
    """The content of the page of pre-checks."""

    title: str = "Checks"
    nodes: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    #: The checks whose last run on some node did not pass, and all other checks. Together they are `checks`.
    not_well: tuple[str, ...] = ()
    well: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    #: The number of nodes that the page leaves out.
    left_out: int = 0
    trouble: tuple[str, ...] = ()

    def runs(self, check: str, node: str) -> tuple[Run, ...]:
        """Return the runs of a check on a node; empty if the check has not run there."""
        return next((cell.runs for cell in self.cells if (cell.check, cell.node) == (check, node)), ())


def read(ask: PageRequest) -> Checks:
    """Read the last runs of all pre-checks from the journals, by node."""
    found: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    trouble: list[str] = []
    for home in ask.homes:
        history = REMEMBERED.past(home.path)
        trouble += [history.trouble] if history.trouble else []
        for job in history.jobs:
            for record in reversed(job.attempts):
                if record.checks is None or record.checks.reused:
                    continue
                for node, line in ((n, each) for n, own in record.checks.where(job.view.host).items() for each in own):
                    runs = found[node, line.name]
                    if line.state != "not run" and len(runs) < TREND:
                        runs.append(
                            Run(
                                at=record.started_at,
                                state=line.state,
                                message=line.message,
                                took_s=line.took_s,
                                job=job.view.name,
                                href=f"/job/{job.view.id}{ask.at(home)}",
                            )
                        )
    latest: dict[str, float] = {}
    for (node, _), runs in found.items():
        latest[node] = max([latest.get(node, 0.0), *(run.at for run in runs)])
    failing = {node for (node, _), runs in found.items() if runs and runs[0].state == "failed"}
    nodes = sorted(latest, key=lambda node: (node not in failing, -latest[node]))
    shown = sorted(nodes[:MOST_NODES])
    checks = sorted({check for _, check in found})
    not_well = {
        check
        for (node, check), runs in found.items()
        if node in shown and runs and not runs[0].state.startswith("passed")
    }
    return Checks(
        nodes=tuple(shown),
        checks=tuple(checks),
        not_well=tuple(check for check in checks if check in not_well),
        well=tuple(check for check in checks if check not in not_well),
        cells=tuple(
            Cell(node=node, check=check, runs=tuple(runs)) for (node, check), runs in found.items() if node in shown
        ),
        left_out=len(nodes) - len(shown),
        trouble=tuple(trouble),
    )


PAGE = Page("/checks", "checks.html", read, "Checks")

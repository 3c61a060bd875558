"""Fetches a job's prerequisites for a command that waits for them: `holdfast prepare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.launch.fetch_request import data_directory, order_of
from holdfast.model.events import Event
from holdfast.model.fetch_messages import FetchFailed, FetchMoved, FetchTrouble, FetchWord
from holdfast.model.fetch_progress import bar, fetch_sentence
from holdfast.model.job_spec import JobSpec
from holdfast.node.fetching.fetch_process import Fetched, FetchRun
from holdfast.reactor import Reactor

SAID_EVERY_S = 10.0


class NotFetched(HoldfastError):
    """A prerequisite could not be fetched; no part of it is used."""

    def __init__(self, trouble: FetchTrouble) -> None:
        from holdfast.catalogue.exit_rows import load  # imported late, because only a failure needs it

        row = load().row(trouble.phrase)
        self.trouble = trouble
        self.phrase = trouble.phrase
        self.solution = trouble.solution or row.solution
        self.exit_status = row.code
        super().__init__(f"prerequisite {trouble.name}: {trouble.phrase}: {trouble.words}", hint=self.solution)


def fetch_here(
    spec: JobSpec,
    exchange: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    draw: Callable[[str], None] | None = None,
    width: int = 80,
) -> None:
    """Fetch all prerequisites of a job into the exchange directory. Raises NotFetched, BadUsage, OSError.

    `say` prints a line. `draw` redraws one terminal line of `width` columns; if it is None, a line is printed every
    10 s.
    """
    reactor = Reactor(Clock().now)
    order = order_of(
        spec,
        environment,
        node="",
        limit_s=spec.timers.fetch_s,
        directory=data_directory(environment, exchange),
        who=f"holdfast prepare for job {spec.name}",
    )
    end: list[Fetched] = []
    said_at = reactor.now()

    def heard(word: FetchWord, now: float) -> list[Event]:
        nonlocal said_at
        if not isinstance(word, FetchMoved):
            if draw is not None:
                draw("")
            if not isinstance(word, FetchFailed):  # the command prints the failure itself
                say(fetch_sentence(word))
        elif draw is not None:
            draw(bar(word, width))
        elif now >= said_at + SAID_EVERY_S:
            said_at = now
            say(fetch_sentence(word))
        return []

    def ended(fetched: Fetched, now: float) -> list[Event]:
        end.append(fetched)
        return []

    run = FetchRun(order, environment, reactor, heard, ended)
    try:
        while not end:
            reactor.wait()
    finally:
        run.close()
        reactor.close()
    if (trouble := end[0].trouble) is not None:
        raise NotFetched(trouble)

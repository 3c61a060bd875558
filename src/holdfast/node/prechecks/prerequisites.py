"""Fetches a job's prerequisites as part of a node's round of checks, once, after the checks have passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from holdfast.errors import BadUsage
from holdfast.launch.fetch_request import data_directory, order_of, own_exchange
from holdfast.model.check_results import CheckLine, ChecksTaken, CheckState
from holdfast.model.events import ChecksFinished, ChecksMoved, Event
from holdfast.model.evidence import CheckFailure
from holdfast.model.fetch_messages import FetchFailed, FetchMoved, FetchTrouble, FetchWord
from holdfast.model.fetch_progress import fetch_sentence
from holdfast.model.job_spec import JobSpec
from holdfast.model.phrases import Phrase
from holdfast.node.prechecks.fetch_process import Fetched, FetchRun, name_of
from holdfast.reactor import Reactor

#: Seconds between two progress lines of a fetch. Each is a new line instead of a redrawn one, because other lines may
#: come in between.
SAID_EVERY_S = 10.0
#: Seconds between two progress updates for the owner. Each costs a journal row, and a fetch may take hours.
MOVED_EVERY_S = 5.0


class Prerequisites:
    """Fetches a job's prerequisites to its node.

    `node`: this node's name. `environment`: the job's variables. `say` prints one line.
    """

    def __init__(
        self,
        spec: JobSpec,
        node: str,
        environment: Mapping[str, str],
        reactor: Reactor,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._node = node
        self._environment = environment
        self._reactor = reactor
        self._say = say
        self._run: FetchRun | None = None
        self._passed: ChecksFinished | None = None
        self._said_at = self._moved_at = 0.0
        #: True once all prerequisites are complete on this node.
        self.there = False

    def begin(self, passed: ChecksFinished, limit_s: float, now: float) -> list[Event]:
        """Start the fetch, because the checks have passed. The checks' answer follows in an event after the fetch, with
        the fetch's result added. `limit_s`: seconds for the fetch.
        """
        self._passed, self._said_at, self._moved_at = passed, now, now
        try:
            order = order_of(
                self._spec,
                self._environment,
                node=self._node,
                # End the fetch a moment before the owner's time limit for the round.
                limit_s=max(1.0, limit_s - min(30.0, limit_s / 4)),
                directory=data_directory(self._environment, own_exchange()),
                who=f"job {self._spec.name}",
            )
            self._run = FetchRun(order, self._environment, self._reactor, self._on_message, self._ended)
        except BadUsage as error:
            return self._end(self._trouble(Phrase.CONFIG_INVALID, error.message, error.hint), now)
        except OSError as error:
            return self._end(self._trouble(Phrase.DOWNLOAD_FAILED, f"no process was to be had: {error.strerror}"), now)
        return []

    def close(self) -> None:
        """Stop a running fetch. The fetched files stay for a later fetch."""
        if self._run is not None:
            self._run.close()
            self._run = None

    # ------------------------------------------------------------------------------------------ private methods

    def _on_message(self, word: FetchWord, now: float) -> list[Event]:
        moved = isinstance(word, FetchMoved)
        # Do not print a failure, because the failed attempt's report has it.
        if not isinstance(word, FetchMoved | FetchFailed) or (moved and now >= self._said_at + SAID_EVERY_S):
            self._said_at = now
            self._say(fetch_sentence(word))
        if (moved and now < self._moved_at + MOVED_EVERY_S) or self._passed is None or self._run is None:
            return []
        self._moved_at = now
        taken = _with(self._passed, CheckState.CHECKING, self._run.lines())
        return [ChecksMoved(attempt=self._passed.attempt, round=self._passed.round, taken=taken)]

    def _trouble(self, phrase: Phrase, words: str, solution: str = "") -> Fetched:
        name = self._spec.runtime.prerequisites[0].name
        trouble = FetchTrouble(name=name, phrase=phrase, words=words, solution=solution)
        line = CheckLine(name=name_of(name), state="failed", message=f"{phrase}: {words}")
        return Fetched(trouble=trouble, lines=(line,))

    def _ended(self, fetched: Fetched, now: float) -> list[Event]:
        self._run = None
        return self._end(fetched, now)

    def _end(self, fetched: Fetched, now: float) -> list[Event]:
        assert self._passed is not None
        passed, trouble = self._passed, fetched.trouble
        if trouble is None:
            self.there = True
            state = CheckState.PASS
            return [replace(passed, state=state, taken=_with(passed, state, fetched.lines))]
        failure = CheckFailure(
            check=name_of(trouble.name),
            message=f"{self._node}: {trouble.words}",
            solution=trouble.solution,
            nodes=(self._node,),
            blame="",
            phrase=trouble.phrase,
            elsewhere=trouble.here,
        )
        state = CheckState.FAIL
        answer = replace(
            passed,
            state=state,
            failure=failure,
            avoid=(self._node,) if trouble.here else (),
            taken=_with(passed, state, fetched.lines),
        )
        return [answer]


def _with(passed: ChecksFinished, state: CheckState, lines: tuple[CheckLine, ...]) -> ChecksTaken:
    """Return the state of a round of checks: a line for each passed check, followed by a line for each prerequisite."""
    checks = passed.taken.checks if passed.taken is not None else ()
    return ChecksTaken(state=state, reused=False, checks=(*checks, *lines))

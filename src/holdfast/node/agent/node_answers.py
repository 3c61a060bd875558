"""Answers questions that people ask about this node: it reads its workers' logs and runs holdfast commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, assert_never

from holdfast.node.agent.log_requests import LogReader
from holdfast.node.agent.remote_verbs import VerbRunner
from holdfast.wire.node_messages import ForgetLog, NodeAnswer, Question, ReadLog, RunVerb, VerbDone

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace


class NodeAnswers:
    """Answers the owner's questions.

    `place`: the directory of this node's part of the job. `node`: this node's name. `send` sends an answer; if the
    connection breaks, the answer is lost.
    """

    def __init__(self, reactor: Reactor, place: JobPlace, node: str, send: Callable[[NodeAnswer], object]) -> None:
        self._send = send
        self._logs = LogReader(reactor, place.logs, node, send)
        self._verbs = VerbRunner(reactor, place.home, os.environ)

    def answer(self, question: Question) -> None:
        """Handle a question of the owner."""
        match question:
            case ReadLog():
                self._logs.read(question)
            case ForgetLog():
                self._logs.forget(question.id)
            case RunVerb():
                self._verbs.run(question.verb, question.words, partial(self._done, question.id))
            case _:
                assert_never(question)

    def forget(self) -> None:
        """Drop all waiting questions after the connection was lost; the owner sends them again."""
        self._logs.close()

    def moved(self, view: GangView) -> None:
        """Look for new log output after the gang's phase has changed."""
        self._logs.moved(view)

    def close(self) -> None:
        self._logs.close()
        self._verbs.close()

    def _done(self, number: int, ok: bool, text: str) -> None:
        self._send(VerbDone(id=number, ok=ok, text=text))

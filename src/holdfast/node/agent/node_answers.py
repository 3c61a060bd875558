"""A node's part in what people ask from any node: it reads in its workers' logs, and runs our own commands."""

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
    """`send` gives an answer to the owner; it may be lost, and the owner then knows that the connection was."""

    def __init__(self, reactor: Reactor, place: JobPlace, node: str, send: Callable[[NodeAnswer], object]) -> None:
        self._send = send
        self._logs = LogReader(reactor, place.logs, node, send)
        self._verbs = VerbRunner(reactor, place.home, os.environ)

    def answer(self, question: Question) -> None:
        """The owner asks."""
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
        """The connection to the owner was lost: what it waited for it asks again."""
        self._logs.close()

    def moved(self, view: GangView) -> None:
        """The gang is in another phase."""
        self._logs.moved(view)

    def close(self) -> None:
        self._logs.close()
        self._verbs.close()

    def _done(self, number: int, ok: bool, text: str) -> None:
        self._send(VerbDone(id=number, ok=ok, text=text))

"""A user's connection to the owner of a multi-node job. It works on any node that has the job's key."""

from __future__ import annotations

import getpass
import os
import socket
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from holdfast.clock import Clock
from holdfast.errors import BadUsage, HoldfastError
from holdfast.model.codec import encode
from holdfast.owner.nodes.operator_lines import LogLine, OperatorLine, RanksLine, VerbLine
from holdfast.reactor import Reactor
from holdfast.record.owner_address import OwnerAddress
from holdfast.record.state_directory import job_dir
from holdfast.version import __version__
from holdfast.wire.connection_troubles import trouble
from holdfast.wire.control_socket import StopLine
from holdfast.wire.job_key import NAME, VARIABLE, Key, copy_command, job_key
from holdfast.wire.node_messages import PROTOCOL, Answered, Asked, LogFrom, LogPiece, LogRead, LogStream, Verb
from holdfast.wire.owner_dialler import Dialler
from holdfast.wire.peer_identity import Credentials, Identity
from holdfast.wire.socket_options import written
from holdfast.wire.tls_channel import ChannelEnd, ChannelEndKind

__all__ = [
    "Answered",
    "LogFrom",
    "LogLine",
    "LogPiece",
    "LogRead",
    "LogStream",
    "OperatorClient",
    "RanksLine",
    "StopLine",
    "Verb",
    "VerbLine",
]

#: Seconds to wait for the owner's answer to a request, unless the request may wait longer. Commands that run on a node
#: have a shorter limit.
ANSWER_S = 30.0

#: The guard restarts a killed owner within this many seconds.
AGAIN_S = 5.0


class OperatorClient:
    """The connection of a user's command to an owner.

    `ask` sends a request and waits for the answer. `put` sends a request without waiting, and `hear` returns the
    answers.
    """

    def __init__(self, note: OwnerAddress, environment: Mapping[str, str], home: Path) -> None:
        """Connect to the owner. Raises BadUsage if this machine has no key of the job.

        `note`: the owner's address. `home`: the state directory.
        """
        self._note = note
        self._key = _key(note, environment, home)
        self._reactor = Reactor(Clock().now)
        self._question: Asked | None = None
        self._answers: deque[Answered] = deque()
        self._end: ChannelEnd | None = None
        #: If the connection closes before this time, the client connects again, because the guard may restart a killed
        #: owner.
        self._patient_until = 0.0
        self._dialler: Dialler | None = None

    def ask(self, line: OperatorLine, *, waits: bool = False, again: bool = False) -> Answered:
        """Send a request to the owner and return its answer.

        `line`: the request. `waits`: wait without a time limit, until there is something to report. `again`: connect
        once more if the connection breaks, because the guard may have restarted a killed owner. Raises HoldfastError if
        no owner answers. If the job ends meanwhile, the answer has `ended`.
        """
        try:
            return self._asked_once(line, waits=waits)
        except HoldfastError:
            if not again:
                raise
        self._hang_up()
        self._patient_until = self._reactor.now() + AGAIN_S
        return self._asked_once(line, waits=waits)

    def _asked_once(self, line: OperatorLine, *, waits: bool) -> Answered:
        self._answers.clear()
        self._end = None
        self._question = _asked(line, 0)
        if self._dialler is None:
            self._dialler = Dialler(
                self._reactor,
                self._note.host,
                self._note.port,
                Credentials(self._key, Identity.OPERATOR),
                lambda mine, theirs: self._asked(),
                self._on_message,
                self._lost,
            )
        elif not self._dialler.send(self._question):
            return self._left()
        until = self._reactor.now() + ANSWER_S
        moment = None if waits else self._reactor.at(until, lambda now: None)
        while not self._answers and self._end is None and (waits or self._reactor.now() < until):
            self._reactor.wait()
        if moment is not None:
            moment.close()
        return self._answers.popleft() if self._answers else self._left()

    def put(self, line: LogLine, tag: int) -> None:
        """Send a request on the connection of the last `ask`, without waiting for the answer.

        `hear` shows whether the request was lost. `tag`: the number that the answer will have.
        """
        if self._dialler is not None:
            self._dialler.send(_asked(line, tag))

    def hear(self, gathering_s: float) -> list[Answered]:
        """Return the next answers to requests of `put`. Wait for the first answer, then `gathering_s` seconds for more.

        An empty list means that the connection has ended and the requests are lost.
        """
        while not self._answers and self._end is None and self._dialler is not None:
            self._reactor.wait()
        until = self._reactor.now() + gathering_s
        moment = self._reactor.at(until, lambda now: None)
        while self._end is None and self._reactor.now() < until:
            self._reactor.wait()
        moment.close()
        heard = list(self._answers)
        self._answers.clear()
        if not heard:
            self._hang_up()
        return heard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()
        self._reactor.close()

    def _hang_up(self) -> None:
        if self._dialler is not None:
            self._dialler.close()
            self._dialler = None

    def _asked(self) -> Asked:
        assert self._question is not None, "dialled for a question"
        return self._question

    def _on_message(self, message: Any, now: float) -> None:
        if isinstance(message, Answered):
            self._answers.append(message)

    def _lost(self, end: ChannelEnd, now: float) -> None:
        if now < self._patient_until and end.why in (ChannelEndKind.LEFT, ChannelEndKind.BROKEN):
            return  # connect again: the owner was killed after it had accepted this connection
        self._end = end
        assert self._dialler is not None, "it was dialled"
        self._dialler.close()

    def _left(self) -> Answered:
        """Raise HoldfastError with the reason why no answer came."""
        place = written(self._note.host, self._note.port)
        if self._end is None:
            raise HoldfastError(
                f"the owner of job {self._note.job_id} at {place} did not answer within {ANSWER_S:g} s",
                hint=f"ssh {self._note.owner} holdfast show {self._note.job_id}",
            )
        said = trouble(self._end, self._note.host, self._note.port, self._key)
        said.message = f"job {self._note.job_id}: {said.message}; it may be over"
        raise said


def _asked(line: OperatorLine, tag: int) -> Asked:
    return Asked(
        protocol=PROTOCOL,
        version=__version__,
        user=_user(),
        host=socket.gethostname(),
        line=encode(line).decode(),
        tag=tag,
    )


def _key(note: OwnerAddress, environment: Mapping[str, str], home: Path) -> Key:
    # While the job runs, its directory may contain a copy of the job's key, which every machine with the same home
    # directory can read.
    kept = (note.key, str(job_dir(home, note.job_id) / NAME))
    noted = next((path for path in kept if path and Path(path).exists()), None)
    if noted is None and not environment.get(VARIABLE) and not (home / NAME).exists():
        raise BadUsage(
            f"job {note.job_id} runs over nodes, its owner is on {note.owner}, and this machine has no job key: it "
            "can only be asked by one that has",
            hint=f"{copy_command(note.owner, None)}, or ssh {note.owner} holdfast show {note.job_id}",
        )
    return job_key(noted, environment, home)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # this user id has no name, as in many containers, so use the number

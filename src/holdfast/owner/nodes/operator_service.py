"""Answers requests of users on any node: it stops the job, shows it, and fetches logs and other output from its nodes.

At the end of an attempt it also copies the end of each failed rank's log into the job's directory, because a node's
files may be lost with the node.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

import msgspec

from holdfast.node.agent.remote_verbs import VerbRunner
from holdfast.owner.nodes.failed_log_tails import FailedLogTails
from holdfast.owner.nodes.operator_lines import MOST_LINE_BYTES, MOST_WORDS, LogLine, OperatorLine, RanksLine, VerbLine
from holdfast.record.owner_address import OwnerAddress, write_owner_address
from holdfast.safe_files import replace_file
from holdfast.untrusted import Malformed, json_as
from holdfast.version import __version__
from holdfast.wire.control_socket import Reply, StopLine
from holdfast.wire.job_key import NAME as KEY_NAME
from holdfast.wire.node_messages import (
    PROTOCOL,
    Answered,
    Asked,
    ForgetLog,
    LogRead,
    Moved,
    NodeAnswer,
    Question,
    RankAt,
    ReadLog,
    Recorded,
    RunVerb,
    Verb,
    VerbDone,
)

if TYPE_CHECKING:
    from holdfast.decide.gang_view import GangView
    from holdfast.launch.launch_spec import NodesOrder
    from holdfast.model.decisions import AttemptRecord
    from holdfast.model.events import EvidenceCollected
    from holdfast.reactor import Reactor
    from holdfast.record.job_directory import JobPlace
    from holdfast.wire.link_interface import Request

#: Maximum number of users' commands that are connected at the same time.
MOST_WAITING = 64
#: Maximum number of open requests of one user's command: enough for two logs of each listed rank.
MOST_QUESTIONS = 1024
#: Maximum number of ranks in an answer that lists the ranks of an attempt.
MOST_RANKS = 512
#: The owner remembers the ranks' nodes of this many attempts, the latest ones.
KEPT_ATTEMPTS = 8


class OperatorService:
    """Serves the users' commands.

    `place`: the job's directory. `ask`: sends a request to a node, and returns False if the node is not connected.
    `nodes()`: the names of the job's nodes. `view()`: the gang's present state. `stop`: handles a stop request, and
    returns the reply.
    """

    def __init__(
        self,
        reactor: Reactor,
        place: JobPlace,
        *,
        ask: Callable[[str, Question], bool],
        nodes: Callable[[], list[str]],
        view: Callable[[], GangView],
        stop: Callable[[StopLine], Reply],
    ) -> None:
        self._place = place
        self._ask = ask
        self._nodes = nodes
        self._kept_key: Path | None = None
        self._view = view
        self._stop = stop
        self._verbs = VerbRunner(reactor, place.home, os.environ)
        # Begin at a random number, because nodes may still answer requests of an earlier owner.
        self._numbers = int.from_bytes(os.urandom(4))
        self._people: dict[int, OperatorSession] = {}
        self._open: dict[int, OpenQuestion] = {}
        self._held: list[HeldQuestion] = []
        self._followers = LogFollowers()
        #: The number of answers about logs that were sent to users.
        self.logs_read = 0
        self._attempt = 0
        #: Attempt → rank → the rank's role and node.
        self._places: dict[int, dict[int, RankAt]] = {}
        self._tails = FailedLogTails(place.logs, self._ask_for_tail)

    def note(self, order: NodesOrder, name: str, port: int, now: float) -> None:
        """Write this owner's address to a file, for commands on this machine. `name`: the job's name.

        If the user has no file with the job's key, store the key beside the address while the job runs. `order`: the
        multi-node options, with the job's key. `port`: the owner's port.
        """
        here, key = os.uname().nodename, Path(order.key_from)
        try:
            if not key.is_absolute():
                key = self._kept_key = self._place.directory / KEY_NAME
                replace_file(key, order.key)
            said = OwnerAddress(
                job_id=self._place.job_id,
                name=name,
                node="",
                machine=here,
                owner=here,
                host="127.0.0.1",
                port=port,
                began=now,
                key=str(key),
            )
            write_owner_address(self._place.directory, said)
        except OSError:
            # Ignore the error. Without this file, commands on this machine find the job by its socket, but cannot read
            # logs on other nodes.
            pass

    # ------------------------------------------------------------------------------ requests of users

    def asked(self, person: OperatorSession, asked: Asked) -> None:
        """Handle a request of a user's command. The command gets its answer later."""
        self._people[id(person)] = person
        if asked.protocol != PROTOCOL:
            theirs = f"{asked.version} (protocol {asked.protocol})"
            person.dismiss(_no(f"the owner runs holdfast {__version__} (protocol {PROTOCOL}), this command {theirs}"))
            return
        if len(self._people) > MOST_WAITING:
            person.dismiss(_no(f"{MOST_WAITING} others wait for an answer of the owner already: try again"))
            return
        waiting: list[OpenQuestion | HeldQuestion] = [*self._open.values(), *self._held]
        if len([each for each in waiting if each.person is person]) >= MOST_QUESTIONS:
            person.dismiss(_no(f"this command has {MOST_QUESTIONS} questions open already"))
            return
        try:
            line: OperatorLine = json_as(asked.line.encode(), OperatorLine, most_bytes=MOST_LINE_BYTES)
        except Malformed as error:
            person.dismiss(_no(f"this is no question to an owner: {error}"))
            return
        match line:
            case StopLine():
                reply = self._stop(line)
                person.dismiss(Answered(ok=reply.ok, message=reply.message))
            case LogLine():
                self._read(person, line, asked.tag)
            case RanksLine():
                self._tell_ranks(person, line, asked.tag)
            case VerbLine():
                self._run(person, line)
            case _:
                assert_never(line)

    def person_left(self, person: OperatorSession) -> None:
        """Drop the unanswered requests of a user's command whose connection has ended."""
        self._people.pop(id(person), None)
        self._followers.left(person)
        self._held = [held for held in self._held if held.person is not person]
        for number, question in tuple(self._open.items()):
            if question.person is person:
                del self._open[number]
                for node in question.nodes if question.line is not None else ():
                    self._ask(node, ForgetLog(id=number))

    def _run(self, person: OperatorSession, line: VerbLine) -> None:
        words = line.words[:MOST_WORDS]
        if line.verb is Verb.SHOW:
            # Another process reads the journal, because a long journal would block the owner.
            words = (*words, self._place.job_id)
            self._verbs.run(line.verb, words, lambda ok, text: person.dismiss(Answered(ok=ok, message=text)))
            return
        known = self._nodes()
        wanted = [line.node] if line.node or line.verb is not Verb.DEVICES else known
        if unknown := [node for node in wanted if node not in known]:
            named = f"no node `{unknown[0]}`" if unknown[0] else "no node was named"
            person.dismiss(_no(f"{named}: the job has {', '.join(known) or 'none so far'}"))
            return
        number = self._number()
        question = self._open[number] = OpenQuestion(person, set(wanted), 0, as_json="--json" in words)
        for node in wanted:
            if not self._ask(node, RunVerb(id=number, verb=line.verb, words=words)):
                self._verb_done(question, node, VerbDone(id=number, ok=False, text=f"{node} is not connected"))

    def _verb_done(self, question: OpenQuestion, node: str, said: VerbDone) -> None:
        question.nodes.discard(node)
        question.said[node] = said
        if question.nodes:
            return
        self._open.pop(said.id, None)
        several = len(question.said) > 1 and not question.as_json
        parts = [f"{name}:\n{text.text}" if several else text.text for name, text in sorted(question.said.items())]
        ok = all(one.ok for one in question.said.values())
        question.person.dismiss(Answered(ok=ok, message="\n".join(part.rstrip("\n") for part in parts)[:900_000]))

    # ------------------------------------------------------------------------ reading logs for users

    def _read(self, person: OperatorSession, line: LogLine, tag: int) -> None:
        self._followers.read(person, tag)
        attempt, places = self._ranks(person, line, tag)
        if places is None:
            return
        place = places.get(line.rank)
        if place is None:
            person.send(_no(f"attempt {attempt} has no rank {line.rank}: it has ranks 0 to {max(places)}", tag))
            return
        number, node = self._number(), place.node
        question = ReadLog(id=number, rank=line.rank, attempt=attempt, streams=line.streams, wait=line.wait)
        if self._ask(node, question):
            self._open[number] = OpenQuestion(person, {node}, tag, line)
            if line.wait:
                self._followers.read_on(person, tag)
        elif not line.wait:
            person.send(_no(f"rank {line.rank} is on {node}, which is not connected", tag))
        elif attempt < self._attempt:
            # The attempt is over, and the rank's node may be lost for good. So answer that the log has ended.
            lost = LogRead(id=number, attempt=attempt, role=place.role, over=True, node=node)
            person.send(Answered(ok=True, message="", log=lost, tag=tag))
        else:
            self._held.append(HeldQuestion(person, tag, line))

    def _ranks(
        self, person: OperatorSession, line: LogLine | RanksLine, tag: int
    ) -> tuple[int, dict[int, RankAt] | None]:
        """Return the requested attempt's number, and rank → the rank's role and node.

        The second value is None if this call has sent an answer already, or if the answer must wait until the attempt
        begins.
        """
        if line.attempt not in self._places:
            self._learn(self._view())
        attempt = line.attempt or max(self._places, default=0)
        places = self._places.get(attempt)
        if places is None:
            if line.wait and attempt >= self._attempt:
                self._held.append(HeldQuestion(person, tag, line))
            else:
                known = "no attempt has begun"
                if attempt > self._attempt > 0:
                    known = f"there is no attempt {attempt}: the last one is {self._attempt}"
                elif self._places:
                    known = f"where attempt {attempt} ran is not known any more"
                person.send(_no(known, tag))
        return attempt, places

    def _tell_ranks(self, person: OperatorSession, line: RanksLine, tag: int) -> None:
        attempt, places = self._ranks(person, line, tag)
        if places is not None:
            self._followers.turn(person, wait=line.wait)
            told = tuple(places[rank] for rank in sorted(places)[:MOST_RANKS])
            known = tuple(sorted(self._places))
            person.send(
                Answered(
                    ok=True,
                    message="",
                    tag=tag,
                    attempt=attempt,
                    ranks=told,
                    ranks_in_all=len(places),
                    attempts=known,
                )
            )

    def told(self, request: Request) -> None:
        """Look for a new phase or a new attempt record in a request that the owner has sent to all nodes."""
        match request:
            case Moved():
                self.moved(request.view)
            case Recorded():
                self.recorded(request.record)
            case _:
                pass

    def moved(self, view: GangView) -> None:
        """Handle a new phase of the gang: answer the users who waited for the attempt to begin."""
        self._learn(view)
        self._read_held()

    def _learn(self, view: GangView) -> None:
        self._attempt = view.attempt
        if view.members and view.attempt not in self._places:
            self._places[view.attempt] = {
                placement.rank: RankAt(rank=placement.rank, role=placement.role, node=placement.node)
                for placement in (member.placement for member in view.members)
            }
            for old in sorted(self._places)[:-KEPT_ATTEMPTS]:
                del self._places[old]

    def _read_held(self) -> None:
        held, self._held = self._held, []
        for each in held:
            if isinstance(each.line, LogLine):
                self._read(each.person, each.line, each.tag)
            else:
                self._tell_ranks(each.person, each.line, each.tag)

    # ------------------------------------------------------------------- answers and changes of nodes

    def answered(self, node: str, said: NodeAnswer) -> None:
        """Pass a node's answer to the user who sent the request."""
        if isinstance(said, LogRead) and self._tails.read(node, said):
            return
        question = self._open.get(said.id)
        if question is None or node not in question.nodes:
            return  # the user has disconnected meanwhile, so drop the answer
        match said:
            case LogRead():
                del self._open[said.id]
                self.logs_read += 1
                # After the log of an earlier attempt, the user's command requests the log of the next one. So the user
                # still counts as a follower.
                if said.attempt >= self._attempt and said.over and not any(piece.data for piece in said.pieces):
                    self._followers.read(question.person, question.tag)
                answer = Answered(ok=not said.trouble, message=said.trouble, log=said, tag=question.tag)
                question.person.send(answer)
            case VerbDone():
                self._verb_done(question, node, said)
            case _:
                assert_never(said)

    def node_joined(self) -> None:
        """Send the requests that waited for a node, because a node has connected."""
        self._read_held()

    def node_left(self, node: str) -> None:
        """Handle a node's lost connection. Answer its open requests, or keep them until it reconnects."""
        self._tails.node_left(node)
        for number, question in tuple(self._open.items()):
            if node not in question.nodes:
                continue
            why = f"{node} has lost its connection to the owner"
            if question.line is None:
                self._verb_done(question, node, VerbDone(id=number, ok=False, text=why))
                continue
            del self._open[number]
            if question.line.wait:
                self._read(question.person, question.line, question.tag)
            else:
                question.person.send(_no(why, question.tag))

    def collected(self, node: str, event: EvidenceCollected) -> None:
        """Remember the failed ranks on this node, from the evidence of an ended attempt."""
        self._tails.note(node, event)

    def recorded(self, record: AttemptRecord) -> None:
        """Copy the ends of the failed ranks' logs, because the attempt is explained now."""
        report = record.report
        self._tails.fetch(record.attempt, {who.rank for who in (report.first, *report.also) if who is not None})

    def _ask_for_tail(self, node: str, question: Callable[[int], ReadLog]) -> int | None:
        number = self._number()
        return number if self._ask(node, question(number)) else None

    # -------------------------------------------------------------------------------------- the end of the job

    @property
    def fetching(self) -> bool:
        """Whether logs are still being copied into the job's directory."""
        return self._tails.busy

    @property
    def followed(self) -> bool:
        """Whether a user's command still follows a log that it has not read to the end."""
        return self._followers.some

    def close(self) -> None:
        """Send every connected user the answer that the job is over."""
        for person in tuple(self._people.values()):
            person.dismiss(Answered(ok=True, message="the job is over", ended=True))
        self._verbs.close()
        if self._kept_key is not None:
            self._kept_key.unlink(missing_ok=True)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def _no(why: str, tag: int = 0) -> Answered:
    return Answered(ok=False, message=why, tag=tag)


# ------------------------------------------------------------------ what is known about users and open questions


class OperatorSession(Protocol):
    """The connection of a user's command to the owner, as an interface."""

    def send(self, message: Answered) -> bool: ...

    def dismiss(self, message: Answered) -> None: ...


class OpenQuestion(msgspec.Struct):
    """A user's request that at least one node has not answered yet."""

    person: OperatorSession
    nodes: set[str]
    tag: int
    #: The user's request, if it is about a log; else None.
    line: LogLine | None = None
    as_json: bool = False
    said: dict[str, VerbDone] = {}


class HeldQuestion(msgspec.Struct):
    """A user's request that must wait: its attempt has not begun, or its node is not connected."""

    person: OperatorSession
    tag: int
    line: LogLine | RanksLine


class LogFollowers:
    """Records which users' commands still follow logs that they have not read to the end."""

    def __init__(self) -> None:
        #: (session id, request tag) for each log that a user's command still reads. Tag 0: the command has the list of
        #: ranks and will request their logs next.
        self._reading: set[tuple[int, int]] = set()

    @property
    def some(self) -> bool:
        return bool(self._reading)

    def turn(self, person: OperatorSession, *, wait: bool) -> None:
        """Record that the user's command has got the list of an attempt's ranks.

        If `wait` is set, the command requests the ranks' logs next.
        """
        self.left(person)
        if wait:
            self._reading.add((id(person), 0))

    def read_on(self, person: OperatorSession, tag: int) -> None:
        """Record that the user's command still reads a log: its next request was sent to the node. `tag`: the number of
        the request.
        """
        self._reading.add((id(person), tag))

    def read(self, person: OperatorSession, tag: int) -> None:
        """Record that the user's command has read a log to its end, or has sent its next request. `tag`: the number of
        the request.
        """
        self._reading -= {(id(person), tag), (id(person), 0)}

    def left(self, person: OperatorSession) -> None:
        self._reading = {each for each in self._reading if each[0] != id(person)}

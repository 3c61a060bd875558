"""`holdfast logs --follow` over nodes. For each rank a request stays open at the rank's node until the log has new
lines.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from holdfast.cli.job_access.remote_owner import RemoteRefusal
from holdfast.cli.job_logs.local_logs import printer_for
from holdfast.cli.job_logs.remote_logs import FarLogs, RemoteLog, on_from
from holdfast.errors import HoldfastError
from holdfast.model import human_format
from holdfast.owner.nodes.operator_client import Answered, LogLine, LogRead, LogStream
from holdfast.report.merged_logs import LogCursor, LogLineFilter, block_bytes, merge

#: Maximum number of bytes of logs that nodes may send to this process ahead of its reads.
ON_ITS_WAY_BYTES = 8 << 20
#: How long lines are held back to sort lines of several nodes by time, in seconds.
GATHERING_S = 0.1


class _Followed:
    """One log that is followed. `log`: the log on its node. `source`: the cursor that reads the log."""

    def __init__(self, log: RemoteLog, source: LogCursor) -> None:
        self.log = log
        self.source = source
        log.followed = True


class Follower:
    """Prints the lines that the logs have now, and later lines until the job ends.

    Unless the user typed an attempt, later attempts are printed too.

    `far`: reads the logs through the job's owner.
    """

    def __init__(self, far: FarLogs) -> None:
        wish = far.wish
        self._far = far
        # A single stream of one rank needs no prefix, so that a progress bar can be printed while the program draws it.
        prefixed = wish.rank is None or len(wish.streams) > 1
        self._whole = prefixed or not wish.as_they_stand
        self._printer = printer_for((), wish, prefixed=prefixed)
        self._streams = tuple(LogStream(name) for name in wish.streams)
        self._number = 0
        self._read: dict[tuple[int, LogStream], _Followed] = {}
        self._most = 0

    def run(self, ranks: Mapping[int, Sequence[int]]) -> None:
        """Print log lines until the job ends.

        `ranks`: maps each attempt so far to its ranks. Raise HoldfastError if a request fails.
        """
        self._begin(ranks)
        *_, self._number = ranks
        goes_on = self._attempt(ranks[self._number])
        while goes_on and self._far.wish.attempt is None:
            self._number += 1
            self._read = {}
            goes_on = self._next_attempt()
        self._printer.end()
        sys.stdout.buffer.flush()

    def _begin(self, ranks: Mapping[int, Sequence[int]]) -> None:
        """Print the lines that the logs have at the start, sorted by time."""
        try:
            logs = [log for number, wanted in ranks.items() for log in self._far.logs(number, wanted)]
        except RemoteRefusal:
            return  # the attempt has not begun, or a node does not answer; later requests handle both cases
        size = block_bytes(len(logs))
        sources = [LogCursor(log.part, self._far.wish.lines, size, log) for log in logs]
        self._put(sources)
        last = max((log.part.attempt for log in logs), default=0)
        for log, source in zip(logs, sources, strict=True):
            if log.part.attempt == last:
                self._read[log.part.rank, log.stream] = _Followed(log, source)

    def _put(self, sources: Sequence[LogCursor]) -> None:
        merge(sources, self._printer.put, whole_lines=self._whole)
        sys.stdout.buffer.flush()

    def _next_attempt(self) -> bool:
        rank = self._far.wish.rank
        if rank is not None:
            return self._attempt([rank])
        answer = self._far.ranks(self._number, wait=True)
        return not answer.ended and self._attempt([at.rank for at in answer.ranks])

    def _attempt(self, ranks: Sequence[int]) -> bool:
        """Print the new log lines of one attempt until it ends. Return False if the job has ended."""
        waiting = set(ranks)
        self._most = ON_ITS_WAY_BYTES // (2 * len(waiting) or 1)
        self._ask(waiting)
        while waiting:
            heard = self._far.owner.hear(GATHERING_S)
            answers = {answer.tag - 1 if answer.tag else min(waiting): answer for answer in heard if not answer.ended}
            over = {rank for rank, answer in answers.items() if rank in waiting and self._over(rank, answer)}
            self._put([read.source for (rank, _), read in self._read.items() if rank in answers])
            waiting -= over
            if any(answer.ended for answer in heard):
                self._cut_off(waiting)
                return False
            if heard:
                self._ask(waiting & answers.keys())
            elif waiting:
                # If the owner was killed, it is restarted and will answer in a moment.
                try:
                    ended = self._reconnected(min(waiting)).ended
                except HoldfastError:
                    self._cut_off(waiting)
                    raise
                if ended:
                    self._cut_off(waiting)
                    return False
                self._ask(waiting)
        return True

    def _cut_off(self, ranks: set[int]) -> None:
        if ranks:
            self._printer.end()
            some = human_format.ranks(sorted(ranks))
            self._far.tell(
                f"job {self._far.view.id}: the logs of {some} were not read to their ends: the rest lies on their nodes"
            )

    def _reconnected(self, rank: int) -> Answered:
        line = LogLine(rank=rank, attempt=self._number, streams=())
        return self._far.owner.ask(line, again=True)

    def _ask(self, ranks: set[int]) -> None:
        for rank in sorted(ranks):
            self._far.owner.put(self._question(rank), rank + 1)

    def _question(self, rank: int) -> LogLine:
        streams = []
        for stream in self._streams:
            read = self._read.get((rank, stream))
            streams.append(on_from(stream, read.source.mark if read else None, self._most, whole=self._whole))
        return LogLine(rank=rank, attempt=self._number, streams=tuple(streams), wait=True)

    def _over(self, rank: int, answer: Answered) -> bool:
        """Return whether this rank will write no more lines in the attempt.

        The merge still prints the lines that have already arrived.
        """
        log = answer.log
        if log is None or not answer.ok:
            error = self._far.refusal(answer)
            if self._far.wish.rank is not None:
                raise error
            self._far.tell(error.message)
            return True
        self._number = log.attempt or self._number
        for piece in log.pieces:
            self._reading(log, rank, piece.stream).log.arrived.append(piece)
        return log.over and not any(piece.data for piece in log.pieces)

    def _reading(self, said: LogRead, rank: int, stream: LogStream) -> _Followed:
        read = self._read.get((rank, stream))
        if read is None:
            log = self._far.log(said, rank, stream)
            # The reader begins at the start of each later log, so only the user's pattern filters its lines.
            lines = LogLineFilter(pattern=self._far.wish.lines.pattern)
            read = self._read[rank, stream] = _Followed(log, LogCursor(log.part, lines, self._most, log))
        return read

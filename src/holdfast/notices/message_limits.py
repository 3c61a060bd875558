"""Sends messages to people. Equal notices are sent once, and their number is limited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.model.codec import encode
from holdfast.model.notice_messages import Beginning, Notice
from holdfast.notices.message_grouping import key_of
from holdfast.notices.send_queue import SendQueue, ours

#: Maximum number of messages before a job's end. The message about the end is always sent.
MOST = 5
_MOST_TEXT = 2000


class Messages:
    """Sends the messages of one job.

    `urls`: addresses of the receivers, as apprise's URLs. `begin`: describes the job. `queue`: the queue that sends
    them.
    """

    def __init__(self, urls: Sequence[str], begin: Beginning, queue: SendQueue) -> None:
        self._urls = urls
        self._begin = begin
        self._queue = queue
        self._seen: Counter[str] = Counter()
        self._sent = 0

    def add(self, notice: Notice, *, last: bool) -> None:
        """Send the notice, unless an equal notice was sent or the limit is reached.

        `last`: whether the job has ended.
        """
        self._seen[notice.fingerprint] += 1
        if not last and (self._seen[notice.fingerprint] > 1 or self._sent >= MOST):
            return
        self._sent += 1
        lines = [notice.text[:_MOST_TEXT]]
        report = notice.body.get("report")
        if isinstance(report, dict) and report.get("solution"):
            lines.append(f"What to do: {report['solution']}"[:_MOST_TEXT])
        if last and (more := sum(self._seen.values()) - self._sent):
            lines.append(
                f"{more} further notice{'s'[: more != 1]} of this job {'was' if more == 1 else 'were'} not sent."
            )
        lines.append(f"holdfast show {self._begin.job}")
        title = f"holdfast: {self._begin.name}: {notice.kind.value.replace('_', ' ')}"
        begin = self._begin
        key = key_of(self._urls, notice.kind, notice.fingerprint.partition("|")[2], begin.name)
        body = "\n".join(lines)
        data = encode(
            {"urls": self._urls, "title": title, "body": body, "home": begin.home, "job": begin.job, "key": key}
        )
        self._queue.add(ours("holdfast.notices.send_message"), data, {})

"""The process that downloads prerequisites. It reads a `FetchOrder` as JSON from standard input.

It writes one `FetchWord` per line. Exit status 0: all prerequisites are complete. 1: one of them failed, and the last
line gives the reason. 2: the order is invalid.
"""

from __future__ import annotations

import os
import sys

from holdfast.clock import Clock
from holdfast.errors import BadUsage
from holdfast.fetch.fetch_item import ItemFetch
from holdfast.model.codec import encode
from holdfast.model.fetch_messages import FetchOrder, FetchWord
from holdfast.reactor import Reactor
from holdfast.untrusted import Malformed, json_as


def main() -> int:
    try:
        order = json_as(sys.stdin.buffer.read(), FetchOrder)
    except Malformed as error:
        sys.stderr.write(f"holdfast.fetch: the order on standard input: {error}\n")
        return 2
    # The task may run as another user, who must be able to read the files.
    os.umask(0o022)
    reactor = Reactor(Clock().now)
    ends = reactor.now() + order.limit_s
    try:
        works = [ItemFetch(thing, order, _tell, reactor, ends) for thing in order.things]
    except BadUsage as error:
        sys.stderr.write(f"holdfast.fetch: {error.message}\n")
        return 2
    for work in works:
        if not work.run():
            return 1
    return 0


def _tell(word: FetchWord) -> None:
    data = encode(word) + b"\n"
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        os._exit(1)  # the reader of the messages has exited; a later fetch continues from the partial file


if __name__ == "__main__":
    # Exit without waiting for threads, because a library's thread may still wait for a server.
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

"""News in the machine's fault log, sent to every supervisor that lives: each looks into the log then."""

from __future__ import annotations

import _socket  # `socket` itself makes enums of a hundred numbers first: nothing here needs them
import os
from contextlib import closing
from pathlib import Path

import msgspec

#: In the directory of each job: its supervisor listens there.
SOCKET_NAME = "control.sock"

#: In the directory of each node's part of a job: its agent listens there.
NEWS_NAME = "faults-news.sock"


class FaultsLine(msgspec.Struct, frozen=True, tag="faults", tag_field="type"):
    """What `holdfast faults report` and `release` send: the machine's fault log has something new."""


def notify_all(home: Path) -> int:
    """Tell every supervisor and agent that lives under `home` of news in the fault log; how many heard it.

    Nothing waits: a socket that takes nothing at once belongs to a supervisor that will look by itself, at its next
    deadline.
    """
    heard = 0
    for path in (home / "jobs").glob(f"*/{SOCKET_NAME}"):
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            with closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)) as client:
                client.setblocking(False)
                client.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
                client.send(msgspec.json.encode(FaultsLine()) + b"\n")
                heard += 1
        except OSError:
            continue  # left behind by a supervisor that was killed
        finally:
            os.close(directory)
    return heard + sum(_tell_agent(path) for path in (home / "jobs").glob(f"*/nodes/*/{NEWS_NAME}"))


def _tell_agent(path: Path) -> bool:
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False  # the job is over meanwhile
    try:
        with closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)) as client:
            client.setblocking(False)
            client.sendto(b"f", f"/proc/self/fd/{directory}/{NEWS_NAME}")
            return True
    except OSError:
        return False  # left behind by an agent that was killed; or it has more messages than it needs
    finally:
        os.close(directory)

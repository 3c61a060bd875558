"""Notifies every live supervisor and agent of new entries in the machine's fault log: each then reads the log."""

from __future__ import annotations

import _socket  # `socket` builds large enums at import, which would cost start-up time
import os
from contextlib import closing
from pathlib import Path

import msgspec

#: Name of the socket on which a supervisor listens, in the job's directory.
SOCKET_NAME = "control.sock"

#: Name of the socket on which an agent listens, in the node's directory of the job.
NEWS_NAME = "faults-news.sock"


class FaultsLine(msgspec.Struct, frozen=True, tag="faults", tag_field="type"):
    """The machine's fault log has new entries: sent by `holdfast faults report` and `holdfast faults release`."""


def notify_all(home: Path) -> int:
    """Notify every supervisor and agent under the state directory `home`; return how many were notified.

    This never blocks. A supervisor whose socket is full is skipped: it reads the fault log at its next deadline anyway.
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
            continue  # a supervisor that was killed has left the socket behind
        finally:
            os.close(directory)
    return heard + sum(_tell_agent(path) for path in (home / "jobs").glob(f"*/nodes/*/{NEWS_NAME}"))


def _tell_agent(path: Path) -> bool:
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False  # the job's directory was removed meanwhile
    try:
        with closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)) as client:
            client.setblocking(False)
            client.sendto(b"f", f"/proc/self/fd/{directory}/{NEWS_NAME}")
            return True
    except OSError:
        return False  # an agent that was killed has left the socket, or the agent's queue already holds notices
    finally:
        os.close(directory)

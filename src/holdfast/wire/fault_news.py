"""Notifies every live supervisor and agent on this machine of new entries in the fault log, so that they read the
log.
"""

from __future__ import annotations

import _socket  # `socket` builds large enums, which would delay the start
import os
from contextlib import closing
from pathlib import Path

import msgspec

#: The name of a supervisor's control socket in the job's directory.
SOCKET_NAME = "control.sock"

#: The name of an agent's socket for notices about the fault log, in the node's directory of the job.
NEWS_NAME = "faults-news.sock"


class FaultsLine(msgspec.Struct, frozen=True, tag="faults", tag_field="type"):
    """The message that the machine's fault log has new entries.

    `holdfast faults report` and `faults release` send it.
    """


def notify_all(home: Path) -> int:
    """Notify every supervisor and agent under the state directory `home`. Return how many were notified.

    It never blocks. It skips a supervisor whose socket is full, because that supervisor reads the fault log at its next
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
            continue  # skip a socket file that a killed supervisor has left behind
        finally:
            os.close(directory)
    return heard + sum(_tell_agent(path) for path in (home / "jobs").glob(f"*/nodes/*/{NEWS_NAME}"))


def _tell_agent(path: Path) -> bool:
    try:
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False  # count no notice: the job's directory was removed after it was listed
    try:
        with closing(_socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)) as client:
            client.setblocking(False)
            client.sendto(b"f", f"/proc/self/fd/{directory}/{NEWS_NAME}")
            return True
    except OSError:
        # Count no notice: a killed agent has left this socket file, or the agent's queue already has notices.
        return False
    finally:
        os.close(directory)

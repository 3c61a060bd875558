"""Builds the messages to the user about failed connections between agent and owner, each with a command to try."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, assert_never

from holdfast.errors import BadUsage, HoldfastError
from holdfast.wire.job_key import copy_command
from holdfast.wire.socket_options import written
from holdfast.wire.tls_channel import ChannelEnd, ChannelEndKind

if TYPE_CHECKING:
    from holdfast.wire.job_key import Key


class NoOwner(HoldfastError):
    """The error of an agent that has found no owner of this job at the endpoint."""

    exit_status = 251


#: Failures of a connection that no retry can cure. The agent's run ends at once.
FINAL = frozenset({ChannelEndKind.OTHER_KEY})


def trouble(end: ChannelEnd, host: str, port: int, key: Key) -> HoldfastError:
    """Return the error to report when the agent gives up connecting to `host`:`port`.

    end: why the last connection ended.
    key: the agent's key.
    """
    place = written(host, port)
    try_it = f"nc -vz {quote(host)} {port}"
    match end.why:
        case ChannelEndKind.OTHER_KEY:
            mine = f"{key.path}" if key.path else "the one from standard input"
            return BadUsage(
                f"the owner at {place} has another job key than this node ({mine})",
                hint=f"{copy_command(host, key.path)}   (on this node; it replaces this node's key)",
            )
        case ChannelEndKind.NO_TLS | ChannelEndKind.NO_KEY:
            return NoOwner(
                f"what answers at {place} is no holdfast: {end.words}", hint=f"ss -ltnp 'sport = :{port}' on {host}"
            )
        case ChannelEndKind.UNRESOLVED:
            return NoOwner(f"no owner was found: {end.words}", hint=f"getent ahosts {quote(host)}")
        case ChannelEndKind.UNREACHED | ChannelEndKind.BROKEN | ChannelEndKind.LATE:
            why = end.words.removeprefix(f"{place}: ")
            return NoOwner(f"no owner answers at {place}: {why}", hint=try_it)
        case ChannelEndKind.LEFT | ChannelEndKind.MALFORMED | ChannelEndKind.UNREAD | ChannelEndKind.CROWDED:
            return NoOwner(
                f"the owner at {place} does not let this node in: {end.words}", hint=f"nc -vz {quote(host)} {port}"
            )
        case _:
            assert_never(end.why)


def stranger(end: ChannelEnd, owner: str, key: Key) -> tuple[str, str] | None:
    """Return why a peer was not admitted, as a sentence, with a command to try; None if the peer is certainly no agent.

    end: why the peer's connection ended. owner: host name of the owner's machine. key: the owner's key.
    """
    match end.why:
        case ChannelEndKind.OTHER_KEY:
            return "it has another job key", f"{copy_command(owner, key.path)}   (on that node)"
        case ChannelEndKind.MALFORMED:
            return f"it has the job's key, and sent what is no message: {end.words}", ""
        case _:
            return None

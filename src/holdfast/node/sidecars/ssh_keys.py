"""The ssh keys of a job: one pair for the users who log in, and one for the servers.

Both derive from the job's key and its id, as the identities of the link do (`wire/peer_identity.py`). So every node
of a job has the same keys without receiving any, and a restarted owner has them again.
"""

from __future__ import annotations

import enum

from holdfast.wire.ed25519 import Ed25519, derived, openssh_private, openssh_public

_FOR = "holdfast door 1: "


class KeySide(enum.StrEnum):
    """The owner of a key pair."""

    #: The users who log in.
    USER = "user"
    #: Every sshd of the job.
    HOST = "host"


def key_pair(secret: bytes, job_id: str, side: KeySide) -> tuple[bytes, str]:
    """Return a private key in OpenSSH's file format, and its public key as a line without a comment."""
    key = Ed25519(derived(secret, f"{_FOR}{side} {job_id}".encode()))
    return openssh_private(key), openssh_public(key)

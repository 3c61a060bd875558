"""The keys of a job's door for debugging: one pair for those who enter, one for what they enter.

Both follow from the job's own key and its number, as the identities of the link do (`wire/peer_identity.py`):
every node of a job has the same two without being sent any, and an owner that is back has them again.
"""

from __future__ import annotations

import enum

from holdfast.wire.ed25519 import Ed25519, derived, openssh_private, openssh_public

_FOR = "holdfast door 1: "


class KeySide(enum.StrEnum):
    """Whose pair it is."""

    #: Of who enters.
    USER = "user"
    #: Of every sshd of the job.
    HOST = "host"


def key_pair(secret: bytes, job_id: str, side: KeySide) -> tuple[bytes, str]:
    """A private key as OpenSSH keeps it in a file, and its public key as a line without a comment."""
    key = Ed25519(derived(secret, f"{_FOR}{side} {job_id}".encode()))
    return openssh_private(key), openssh_public(key)

"""Mutual TLS between owner, agents and operators. Their keys are derived from the job's key.

Each identity has an Ed25519 key and a self-signed certificate, which follow from the job's key alone. So each end can
compute the other's certificate, and trusts no other; the handshake checks that. A peer without the job's key sees only
the certificate, which shows neither the job nor the version.
"""

from __future__ import annotations

import enum
import os
import ssl
from typing import TYPE_CHECKING

from holdfast.wire.ed25519 import Ed25519, derived, pkcs8
from holdfast.wire.ed25519 import certificate as signed_certificate

if TYPE_CHECKING:
    import socket

    from holdfast.wire.job_key import Key

#: The protocol's name in the TLS handshake (ALPN). By it, an end can distinguish a holdfast with another key from other
#: services.
SPOKEN = "holdfast"

_FOR = b"holdfast identity 1: "


class Identity(enum.StrEnum):
    """The role of one end of a connection. Each role has its own TLS key."""

    #: The job's owner, which accepts connections and commands the agents.
    OWNER = "owner"
    #: The agent of one node, which obeys the owner.
    AGENT = "agent"
    #: A user's command that inspects or stops the job.
    OPERATOR = "operator"


class Credentials:
    """The TLS context of one end: its own certificate, and the certificates that it accepts from peers."""

    def __init__(self, key: Key, mine: Identity) -> None:
        """key: the job's key. mine: the identity of this end.

        Raises `ssl.SSLError` if OpenSSL has no TLS 1.3 or no Ed25519.
        """
        self._serves = serving = mine is Identity.OWNER
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serving else ssl.PROTOCOL_TLS_CLIENT)
        # The whole certificate is compared, so the name in it need not be checked.
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.minimum_version = self.context.maximum_version = ssl.TLSVersion.TLSv1_3
        self.context.set_alpn_protocols([SPOKEN])
        if serving:
            self.context.num_tickets = 0
        private = _private(key, mine)
        _present(self.context, private, certificate(key, mine))
        others = (Identity.AGENT, Identity.OPERATOR) if serving else (Identity.OWNER,)
        self._known = {certificate(key, other): other for other in others}
        self.context.load_verify_locations(cadata=b"".join(self._known))

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Wrap a non-blocking connection in TLS, without starting the handshake."""
        return self.context.wrap_socket(
            connection, server_side=self._serves, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )

    def peer(self, connection: ssl.SSLSocket) -> Identity | None:
        """Return the peer's identity after the handshake; None if its certificate is unknown."""
        return self._known.get(connection.getpeercert(binary_form=True) or b"")


def certificate(key: Key, identity: Identity) -> bytes:
    """Return an identity's certificate in DER. It has the same bytes on every node, and is valid at any time."""
    return signed_certificate(_private(key, identity), f"{SPOKEN} {identity}")


def _private(key: Key, identity: Identity) -> Ed25519:
    return Ed25519(derived(key.secret(), _FOR + identity.encode()))


def _present(context: ssl.SSLContext, private: Ed25519, der: bytes) -> None:
    """Load this certificate into `context`.

    Python reads certificates only from files, so this uses an unnamed file in memory.
    """
    pem = pkcs8(private) + _pem(der)
    fd = os.memfd_create("holdfast", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _pem(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode("ascii")

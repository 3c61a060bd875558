"""Who is at the other end: keys of owner, agent and operator, all derived from the job's key, and TLS that wants them.

Each identity is an Ed25519 key in a certificate that it has signed itself. All of it follows from the job's key alone,
byte for byte, so both ends make the certificates of the other and trust these and no others. The check is part of
the handshake: a peer without the key gets nothing but the certificate, which says neither job nor version.
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

#: The name that both ends give to what they speak (ALPN): it tells another key from another service.
SPOKEN = "holdfast"

_FOR = b"holdfast identity 1: "


class Identity(enum.StrEnum):
    """What a side of a connection may do."""

    #: Accepts connections; commands agents.
    OWNER = "owner"
    #: Looks after one node; obeys the owner.
    AGENT = "agent"
    #: A person's command: looks at the job or stops it.
    OPERATOR = "operator"


class Credentials:
    """One side's TLS: its own certificate, and those of the peers that it accepts."""

    def __init__(self, key: Key, mine: Identity) -> None:
        """Raises `ssl.SSLError` where this machine's OpenSSL has no TLS 1.3 or no Ed25519."""
        self._serves = serving = mine is Identity.OWNER
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serving else ssl.PROTOCOL_TLS_CLIENT)
        # The certificate itself is known, hence no name is to be compared.
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
        """TLS over a connection that does not block; its handshake is still to come."""
        return self.context.wrap_socket(
            connection, server_side=self._serves, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )

    def peer(self, connection: ssl.SSLSocket) -> Identity | None:
        """Who is at the other end, after the handshake; None where the certificate is not the expected one."""
        return self._known.get(connection.getpeercert(binary_form=True) or b"")


def certificate(key: Key, identity: Identity) -> bytes:
    """An identity's certificate as DER: the same bytes wherever the key is. A node with a wrong clock is let in too."""
    return signed_certificate(_private(key, identity), f"{SPOKEN} {identity}")


def _private(key: Key, identity: Identity) -> Ed25519:
    return Ed25519(derived(key.secret(), _FOR + identity.encode()))


def _present(context: ssl.SSLContext, private: Ed25519, der: bytes) -> None:
    """Have `context` show this certificate. Python takes it from a file only: this one is in memory, without a name."""
    pem = pkcs8(private) + _pem(der)
    fd = os.memfd_create("holdfast", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _pem(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode("ascii")

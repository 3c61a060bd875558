"""Identities follow from the key alone: the same bytes on every node and with every version of the library."""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path

import pytest

from holdfast.wire.ed25519 import Ed25519, derived, pkcs8
from holdfast.wire.job_key import Key
from holdfast.wire.peer_identity import Credentials, Identity, certificate

COUNTING_KEY = Key(bytes(range(32)))


@pytest.mark.parametrize(
    ("identity", "digest"),
    [
        (Identity.OWNER, "28848b2e50ae6cee"),
        (Identity.AGENT, "6295dba2ef57a9a3"),
        (Identity.OPERATOR, "a193fd9c05d807e3"),
    ],
)
def test_a_certificate_is_the_same_everywhere(identity: Identity, digest: str) -> None:
    """Both ends make it, and compare it byte for byte: other bytes are another key."""
    assert hashlib.sha256(certificate(COUNTING_KEY, identity)).hexdigest()[:16] == digest


def test_keys_and_identities_have_certificates_of_their_own() -> None:
    keys = [COUNTING_KEY, Key(bytes(32))]
    assert len({certificate(key, identity) for key in keys for identity in Identity}) == 6


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory. Raises the first error of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return ends


def context(key: Key, identity: Identity) -> ssl.SSLContext:
    return Credentials(key, identity).context


def test_both_ends_speak_tls_1_3_without_tickets() -> None:
    client, server = shake(context(COUNTING_KEY, Identity.OWNER), context(COUNTING_KEY, Identity.AGENT))
    assert client.version() == server.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLWantReadError):
        client.read(1)  # a ticket would be read here
    assert client.session is None or not client.session.has_ticket


def anybody() -> ssl.SSLContext:
    """A client that takes every certificate and shows none."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    return found


def old() -> ssl.SSLContext:
    found = anybody()
    found.maximum_version = ssl.TLSVersion.TLSv1_2
    return found


def unverifying() -> ssl.SSLContext:
    """An agent with another key, which looks at no certificate."""
    found = context(Key(bytes(32)), Identity.AGENT)
    found.verify_mode = ssl.CERT_NONE
    return found


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (anybody(), "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (old(), "UNSUPPORTED_PROTOCOL"),
        (unverifying(), "CERTIFICATE_VERIFY_FAILED"),
        (context(Key(bytes(32)), Identity.AGENT), "CERTIFICATE_VERIFY_FAILED"),
        (context(Key(bytes(32)), Identity.OPERATOR), "CERTIFICATE_VERIFY_FAILED"),
    ],
    ids=["no certificate", "TLS 1.2", "another key", "agent of another key", "operator of another key"],
)
def test_without_the_key_there_is_no_handshake(client: ssl.SSLContext, said: str) -> None:
    with pytest.raises(ssl.SSLError, match=said):
        shake(context(COUNTING_KEY, Identity.OWNER), client)


def showing(end: ssl.SSLContext, identity: Identity, directory: Path) -> ssl.SSLContext:
    """The same end, which shows the certificate of another identity of its key."""
    private = Ed25519(derived(COUNTING_KEY.secret(), b"holdfast identity 1: " + identity.encode()))
    file = directory / f"{identity}.pem"
    file.write_bytes(pkcs8(private) + ssl.DER_cert_to_PEM_cert(certificate(COUNTING_KEY, identity)).encode())
    end.load_cert_chain(file)
    return end


def test_nobody_dials_the_owner_as_the_owner(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake(
            context(COUNTING_KEY, Identity.OWNER),
            showing(context(COUNTING_KEY, Identity.AGENT), Identity.OWNER, tmp_path),
        )


@pytest.mark.parametrize("identity", [Identity.AGENT, Identity.OPERATOR])
@pytest.mark.parametrize("dials", [Identity.AGENT, Identity.OPERATOR])
def test_only_the_owner_answers_as_the_owner(identity: Identity, dials: Identity, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        shake(showing(context(COUNTING_KEY, Identity.OWNER), identity, tmp_path), context(COUNTING_KEY, dials))


@pytest.mark.parametrize("identity", [Identity.AGENT, Identity.OPERATOR])
def test_each_end_knows_who_the_other_is(identity: Identity) -> None:
    mine, theirs = Credentials(COUNTING_KEY, Identity.OWNER), Credentials(COUNTING_KEY, identity)
    pair = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
    owner, peer = mine.wrap(pair[0]), theirs.wrap(pair[1])
    for _ in range(3):
        for end in (peer, owner):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    assert (mine.peer(owner), theirs.peer(peer)) == (identity, Identity.OWNER)
    owner.close()
    peer.close()

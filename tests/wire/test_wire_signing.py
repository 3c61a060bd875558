"""Ed25519 by the package and by OpenSSL's library: the same bytes, and those that other programs write and read."""

from __future__ import annotations

import datetime
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key
from cryptography.x509.oid import NameOID

from holdfast.wire import ed25519

SIGNING_SECRETS = [bytes(32), bytes(range(32)), b"\xff" * 32]
MODULE = "cryptography.hazmat.primitives.asymmetric.ed25519"


@functools.cache
def certificate_of_the_package() -> bytes:
    private = Ed25519PrivateKey.from_private_bytes(SIGNING_SECRETS[1])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast owner")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, None)
    )
    return made.public_bytes(Encoding.DER)


@pytest.fixture(params=["package", "library"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "library":
        try:
            ed25519._openssl()
        except ImportError as error:
            pytest.skip(str(error))
        certificate_of_the_package()  # it looks for its own modules when it signs
        monkeypatch.setitem(sys.modules, MODULE, None)
    return str(request.param)


@pytest.mark.parametrize("secret", SIGNING_SECRETS, ids=["zeros", "counted", "ones"])
def test_key_and_signature_are_those_of_the_package(by: str, secret: bytes) -> None:
    package = Ed25519PrivateKey.from_private_bytes(secret)
    key = ed25519.Ed25519(secret)
    assert key.public == package.public_key().public_bytes_raw()
    assert key.sign(b"words") == package.sign(b"words")


def test_the_certificate_is_byte_for_byte_what_an_x509_library_makes(by: str) -> None:
    assert ed25519.certificate(ed25519.Ed25519(SIGNING_SECRETS[1]), "holdfast owner") == certificate_of_the_package()


def test_the_key_for_tls_is_what_the_package_writes(by: str) -> None:
    told = Ed25519PrivateKey.from_private_bytes(SIGNING_SECRETS[1])
    pem = told.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert ed25519.pkcs8(ed25519.Ed25519(SIGNING_SECRETS[1])) == pem


def test_a_derived_secret_is_that_of_hkdf() -> None:
    theirs = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"for a test").derive(b"secret")
    assert ed25519.derived(b"secret", b"for a test") == theirs


def test_openssh_reads_the_key_that_it_is_given(by: str, tmp_path: Path) -> None:
    key = ed25519.Ed25519(SIGNING_SECRETS[1])
    read = load_ssh_private_key(ed25519.openssh_private(key), None)
    assert isinstance(read, Ed25519PrivateKey) and read.private_bytes_raw() == SIGNING_SECRETS[1]
    if tool := shutil.which("ssh-keygen"):
        file = tmp_path / "key"
        file.write_bytes(ed25519.openssh_private(key))
        file.chmod(0o600)
        done = subprocess.run([tool, "-y", "-f", file], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ed25519.openssh_public(key)


def test_without_both_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    monkeypatch.setattr(ed25519, "LIBRARIES", ("libnone.so.9",))
    with pytest.raises(ImportError, match=r"neither the package cryptography nor one of libnone\.so\.9"):
        ed25519.Ed25519(SIGNING_SECRETS[0])


def test_nothing_shows_the_secret() -> None:
    assert SIGNING_SECRETS[1].hex() not in repr(ed25519.Ed25519(SIGNING_SECRETS[1]))

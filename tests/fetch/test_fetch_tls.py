"""TLS: a certificate that no authority vouches for, one for another name, and an authority that a variable names."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fetched import fetch, nothing_counts
from web_server import web_server

pytestmark = pytest.mark.real
A_DAY = datetime.timedelta(days=1)


def served(directory: Path, name: x509.GeneralName, *, days: int = 2) -> tuple[ssl.SSLContext, Path]:
    """A context with a certificate of its own for `name`, and the file in which it stands."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * A_DAY)
        .not_valid_after(now - 3 * A_DAY + (days + 3) * A_DAY)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "server.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = directory / "server.key"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, private)
    return context, pem


LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def test_a_certificate_that_no_authority_knows_is_refused_and_not_tried_again(tmp_path: Path) -> None:
    context, _ = served(tmp_path, LOOPBACK)
    with web_server(b"secret", context) as web:
        ran = fetch(tmp_path / "m", f"{web.url}/file/m")
    assert ran.phrase == "TlsVerifyFailed" and ran.failed.tries == 1 and nothing_counts(tmp_path / "m")
    assert "self-signed certificate" in ran.failed.trouble.words.replace("self signed", "self-signed")


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_an_authority_that_a_variable_names_is_trusted(tmp_path: Path, variable: str) -> None:
    context, pem = served(tmp_path, LOOPBACK)
    with web_server(b"content", context) as web:
        ran = fetch(tmp_path / "m", f"{web.url}/file/m", env={variable: str(pem)})
    assert ran.status == 0 and (tmp_path / "m").read_bytes() == b"content"


def test_a_certificate_of_another_name_or_of_yesterday_is_refused(tmp_path: Path) -> None:
    for name, days in ((x509.DNSName("other.lab"), 2), (LOOPBACK, -1)):
        context, pem = served(tmp_path, name, days=days)
        with web_server(b"content", context) as web:
            ran = fetch(tmp_path / "m", f"{web.url}/file/m", env={"SSL_CERT_FILE": str(pem)})
        assert ran.phrase == "TlsVerifyFailed", ran.text


def test_a_bundle_that_is_none_is_named(tmp_path: Path) -> None:
    with web_server(b"content") as web:
        ran = fetch(tmp_path / "m", f"{web.url}/file/m", env={"REQUESTS_CA_BUNDLE": str(tmp_path / "no.pem")})
    assert ran.phrase == "TlsVerifyFailed" and "REQUESTS_CA_BUNDLE=" in ran.failed.trouble.words

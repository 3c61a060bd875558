"""Ed25519 keys from 32 secret bytes: public key, signatures, and their encodings for X.509, PKCS #8 and OpenSSH.

An ordinary installation uses the package `cryptography`. A copied runtime (holdfast's files, as sent to each task)
lacks it, because it would take a fifth of the space. It uses the OpenSSL library, which TLS needs anyway. Both give the
same bytes.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET_BYTES, PUBLIC_BYTES, SIGNATURE_BYTES = 32, 32, 64
LIBRARIES = ("libcrypto.so.3", "libcrypto.so.1.1")
#: OpenSSL's number for the algorithm Ed25519 (NID_ED25519).
_ED25519 = 1087
_SSH = b"ssh-ed25519"
#: The block size of an unencrypted OpenSSH key, in bytes. The secret part is padded to a multiple of it.
_SSH_BLOCK = 8


class Ed25519:
    """One Ed25519 key pair."""

    def __init__(self, secret: bytes) -> None:
        """secret: 32 bytes.

        Raises ImportError if neither the package `cryptography` nor the OpenSSL library is available.
        """
        self.secret = secret
        self.public: bytes
        self._sign: Callable[[bytes], bytes]
        try:
            # imported late, because a copied runtime lacks this package
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError:
            by_library = _Library(secret)
            self.public, self._sign = by_library.public(), by_library.sign
        else:
            private = Ed25519PrivateKey.from_private_bytes(secret)
            self.public, self._sign = private.public_key().public_bytes_raw(), private.sign

    def sign(self, message: bytes) -> bytes:
        return self._sign(message)

    def __repr__(self) -> str:
        return "Ed25519(…)"  # do not print the secret


class _Library:
    """Ed25519 through the OpenSSL library, in place of the package `cryptography`."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._openssl = _openssl()

    def public(self) -> bytes:
        key = self._key()
        out, size = ctypes.create_string_buffer(PUBLIC_BYTES), ctypes.c_size_t(PUBLIC_BYTES)
        try:
            _done(self._openssl.EVP_PKEY_get_raw_public_key(key, out, ctypes.byref(size)))
        finally:
            self._openssl.EVP_PKEY_free(key)
        return out.raw

    def sign(self, message: bytes) -> bytes:
        key = self._key()
        context = ctypes.c_void_p(self._openssl.EVP_MD_CTX_new())
        out, size = ctypes.create_string_buffer(SIGNATURE_BYTES), ctypes.c_size_t(SIGNATURE_BYTES)
        try:
            _done(self._openssl.EVP_DigestSignInit(context, None, None, None, key))
            _done(self._openssl.EVP_DigestSign(context, out, ctypes.byref(size), message, len(message)))
        finally:
            self._openssl.EVP_MD_CTX_free(context)
            self._openssl.EVP_PKEY_free(key)
        return out.raw

    def _key(self) -> ctypes.c_void_p:
        made = self._openssl.EVP_PKEY_new_raw_private_key(_ED25519, None, self._secret, len(self._secret))
        _done(1 if made else 0)
        return ctypes.c_void_p(made)


def _openssl() -> Any:
    """Load the OpenSSL library and declare the functions used. Raises ImportError if the library is missing."""
    for name in LIBRARIES:
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        at = ctypes.POINTER(size)
        for function, result, *arguments in (
            ("EVP_PKEY_new_raw_private_key", pointer, ctypes.c_int, pointer, ctypes.c_char_p, size),
            ("EVP_PKEY_get_raw_public_key", ctypes.c_int, pointer, ctypes.c_char_p, at),
            ("EVP_PKEY_free", None, pointer),
            ("EVP_MD_CTX_new", pointer),
            ("EVP_MD_CTX_free", None, pointer),
            ("EVP_DigestSignInit", ctypes.c_int, pointer, pointer, pointer, pointer, pointer),
            ("EVP_DigestSign", ctypes.c_int, pointer, ctypes.c_char_p, at, ctypes.c_char_p, size),
        ):
            getattr(found, function).restype = result
            getattr(found, function).argtypes = arguments
        return found
    raise ImportError(f"there is neither the package cryptography nor one of {', '.join(LIBRARIES)}")


def _done(answer: int) -> None:
    if answer != 1:
        raise ValueError("OpenSSL's library refuses Ed25519")


def derived(secret: bytes, purpose: bytes) -> bytes:
    """Derive 32 bytes from `secret` for one purpose, with HKDF (RFC 5869), SHA-256 and no salt."""
    within = hmac.digest(bytes(hashlib.sha256().digest_size), secret, "sha256")
    return hmac.digest(within, purpose + b"\1", "sha256")


# ------------------------------------------------------------------------------------ encodings in standard formats

#: DER encodings of the object identifiers for Ed25519 (RFC 8410), `commonName` and `basicConstraints`.
_OID, _COMMON_NAME, _CONSTRAINTS = bytes.fromhex("06032b6570"), bytes.fromhex("0603550403"), bytes.fromhex("0603551d13")
_SEQUENCE, _SET, _INTEGER, _BOOLEAN, _BITS, _OCTETS, _TEXT = 0x30, 0x31, 0x02, 0x01, 0x03, 0x04, 0x0C
_SHORT_TIME, _LONG_TIME, _TAG_0, _TAG_3 = 0x17, 0x18, 0xA0, 0xA3


def der(tag: int, *parts: bytes) -> bytes:
    """Encode one DER value with this tag. Its content is the concatenation of the `parts`."""
    content = b"".join(parts)
    if (size := len(content)) < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def certificate(key: Ed25519, name: str) -> bytes:
    """Return a self-signed X.509 certificate in DER, valid from 1970 to 9999.

    The same key and name always give the same bytes.
    """
    algorithm = der(_SEQUENCE, _OID)
    named = der(_SEQUENCE, der(_SET, der(_SEQUENCE, _COMMON_NAME, der(_TEXT, name.encode()))))
    always = der(_SEQUENCE, der(_SHORT_TIME, b"700101000000Z"), der(_LONG_TIME, b"99991231235959Z"))
    no_authority = der(_SEQUENCE, _CONSTRAINTS, der(_BOOLEAN, b"\xff"), der(_OCTETS, der(_SEQUENCE)))
    signed = der(
        _SEQUENCE,
        der(_TAG_0, der(_INTEGER, b"\2")),  # X.509 version 3
        der(_INTEGER, b"\1"),  # the certificate's serial number
        algorithm,
        named,
        always,
        named,
        der(_SEQUENCE, algorithm, der(_BITS, b"\0", key.public)),
        der(_TAG_3, der(_SEQUENCE, no_authority)),
    )
    return der(_SEQUENCE, signed, algorithm, der(_BITS, b"\0", key.sign(signed)))


def pkcs8(key: Ed25519) -> bytes:
    """Return the secret key in PKCS #8 as PEM, for TLS (RFC 8410)."""
    whole = der(_SEQUENCE, der(_INTEGER, b"\0"), der(_SEQUENCE, _OID), der(_OCTETS, der(_OCTETS, key.secret)))
    return _pem("PRIVATE KEY", whole)


def openssh_public(key: Ed25519) -> str:
    """Return the public key as one line in OpenSSH's format, without comment."""
    return f"{_SSH.decode()} {base64.b64encode(_ssh_public(key)).decode()}"


def openssh_private(key: Ed25519) -> bytes:
    """Return the secret key in OpenSSH's file format, without a pass phrase."""
    # OpenSSH uses this check value only to detect a wrong pass phrase, so any value will do.
    check = hashlib.sha256(key.public).digest()[:4]
    inner = check * 2 + _ssh(_SSH) + _ssh(key.public) + _ssh(key.secret + key.public) + _ssh(b"")
    inner += bytes(range(1, 1 + -len(inner) % _SSH_BLOCK))
    none = _ssh(b"none")
    one = (1).to_bytes(4, "big")
    return _pem(
        "OPENSSH PRIVATE KEY",
        b"openssh-key-v1\0" + none + none + _ssh(b"") + one + _ssh(_ssh_public(key)) + _ssh(inner),
    )


def _ssh_public(key: Ed25519) -> bytes:
    return _ssh(_SSH) + _ssh(key.public)


def _ssh(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _pem(what: str, data: bytes) -> bytes:
    text = base64.b64encode(data).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {what}-----", *lines, f"-----END {what}-----", ""]).encode()

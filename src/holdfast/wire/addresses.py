"""Finds this machine's network addresses, and the addresses of a host name."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator

from holdfast.errors import BadUsage
from holdfast.lazy_pattern import Lazy
from holdfast.model.noun_base import Noun

_HEADER = struct.Struct("=IHHII")
_ADDRESS = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_GET_ADDRESSES, _NEW_ADDRESS, _ERROR, _DONE = 22, 20, 2, 3
_DUMP_REQUEST = 0x301
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_ANSWER_BYTES = 1 << 18
_WITHIN_S = 5.0

#: Names of bridges to local containers. Other machines may have the same addresses on their bridges, so these are
#: useless to them.
_OF_CONTAINERS = Lazy(r"docker\d*|virbr\d+|cni\d+|podman\d+|lxcbr\d+|br-[0-9a-f]{12}")


class Interface(Noun, frozen=True, kw_only=True):
    """One address of one network interface, without the length of its prefix."""

    name: str
    address: str


def interfaces() -> tuple[Interface, ...]:
    """Return all addresses of this machine, in the kernel's order. Raises OSError without netlink."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(_WITHIN_S)
        size = _HEADER.size + _ADDRESS.size
        kernel.send(_HEADER.pack(size, _GET_ADDRESSES, _DUMP_REQUEST, 1, 0) + _ADDRESS.pack(0, 0, 0, 0, 0))
        found: list[Interface] = []
        while True:
            for kind, body in _messages(kernel.recv(_ANSWER_BYTES)):
                if kind in (_DONE, _ERROR):
                    return tuple(found)
                if kind == _NEW_ADDRESS and (interface := _interface(body)) is not None:
                    found.append(interface)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _interface(body: bytes) -> Interface | None:
    *_, index = _ADDRESS.unpack_from(body)
    rest = body[_ADDRESS.size :]
    values: dict[int, bytes] = {}
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        if not _ATTRIBUTE.size <= length <= len(rest):
            break
        values[kind] = rest[_ATTRIBUTE.size : length]
        rest = rest[(length + 3) & ~3 :]
    # On a point-to-point link IFA_ADDRESS is the other end's address, so prefer IFA_LOCAL.
    packed = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS, b"")
    if len(packed) not in (4, 16):
        return None
    try:
        name = socket.if_indextoname(index)
    except OSError:
        return None  # skip an interface that was removed after the kernel listed its address
    return Interface(name=name, address=str(ipaddress.ip_address(packed)))


def plain(address: str) -> str:
    """Return an address without brackets and zone, and an IPv4-mapped IPv6 address as IPv4. Return a host name
    unchanged.
    """
    text = address.strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def is_loopback(address: str) -> bool:
    """Return whether `address` is this machine's loopback: 127.0.0.0/8, ::1, or a host name that always means one of
    them.
    """
    text = plain(address)
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text.lower().rstrip(".") in ("localhost", "ip6-localhost", "ip6-loopback", "localhost.localdomain")


def offered(found: Iterable[Interface]) -> tuple[str, ...]:
    """Return the addresses that other machines can reach, IPv4 first, without loopback, link-local and container bridge
    addresses.
    """
    usable = []
    for interface in found:
        address = ipaddress.ip_address(interface.address)
        if not (address.is_loopback or address.is_link_local or _OF_CONTAINERS.fullmatch(interface.name)):
            usable.append(address)
    return tuple(str(address) for address in sorted(usable, key=lambda address: address.version))


def addresses_of(host: str) -> tuple[str, ...]:
    """Return all addresses to which `host` resolves, without duplicates. Raises `BadUsage` if it cannot be resolved."""
    try:
        answers = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadUsage(
            f"the host name {host} cannot be resolved on {os.uname().nodename}: {why}: expected the name or address of "
            "the node that hosts the owner",
            hint=f"getent ahosts {host}",
        ) from None
    return tuple(dict.fromkeys(plain(str(answer[4][0])) for answer in answers))


def interface_towards(host: str) -> str:
    """Return the name of the network interface to a host; "" if it is a loopback interface or unknown."""
    try:
        found = interfaces()
        for address in addresses_of(host):
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
                # `connect` on a datagram socket sends nothing. It only chooses the interface.
                probe.connect((address, 9))
                own = probe.getsockname()[0]
            if not is_loopback(own):
                return next((each.name for each in found if each.address == own), "")
    except (OSError, BadUsage):
        return ""
    return ""


def gloo_interface(host: str) -> str:
    """Return the interface to a host, if this machine's own name leads to no address that others can reach; else ""."""
    name = interface_towards(host)
    try:
        own = addresses_of(os.uname().nodename) if name else ()
    except BadUsage:
        return name
    return name if all(map(is_loopback, own)) else ""

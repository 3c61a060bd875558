"""The two changes that pages offer: release a device, and report a fault. Each runs a command that a user could type.

The server changes nothing itself. It starts `holdfast release` or `holdfast faults report` as the server's user, and
these commands notify every job of that user through the job's socket. A request for a change needs the token in
holdfast's form and must come from a page of holdfast. If it comes from this machine, the sending process must belong to
the same user or to root.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from holdfast.errors import HoldfastError
from holdfast.web.page_parts import BadRequest, Home, is_loopback
from holdfast.web.token_access import form_token

MOST_BODY = 16 * 1024
MOST_FIELD = 500
LIMIT_S = 30.0
ASSERTIONS = ("occur", "recover", "once")


class Forbidden(HoldfastError):
    """Raised if a request may not change anything. The message says why."""


async def fields_of(request: Request, token: str) -> dict[str, str]:
    """Return the form fields of a request for a change. Raise `Forbidden` or `BadRequest`."""
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > MOST_BODY:
            raise BadRequest(f"the form has more than {MOST_BODY} bytes", hint="/devices")
    given = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace"), max_num_fields=20).items()}
    if not hmac.compare_digest(given.get("form", "").encode(), form_token(token).encode()):
        raise Forbidden("this form is not of a page that this server has sent: open the page anew", hint="/devices")
    origin = request.headers.get("origin", "")
    if origin and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise Forbidden("another site has sent this form", hint="/devices")
    _must_be_same_user(request)
    for name, value in given.items():
        if len(value) > MOST_FIELD or "\0" in value:
            raise BadRequest(f"`{name}` is longer than {MOST_FIELD} characters, or has a NUL in it", hint="/devices")
    return given


def release_of(given: Mapping[str, str]) -> list[str]:
    """Return the arguments of `holdfast release`. Raises `BadRequest`."""
    device, reason = given.get("device", "").strip(), given.get("reason", "").strip()
    if not device or not reason:
        raise BadRequest("a device and the reason why it may work again were expected", hint="/devices")
    return ["release", f"--reason={reason}", "--", device]


def report_of(given: Mapping[str, str]) -> list[str]:
    """Return the arguments of `holdfast faults report`. Raises `BadRequest`."""
    device, code, assertion = (given.get(name, "").strip() for name in ("device", "code", "assertion"))
    if not device or not code or assertion not in ASSERTIONS:
        raise BadRequest(f"a device, a code and one of {', '.join(ASSERTIONS)} were expected", hint="/devices")
    node, text = given.get("node", "").strip(), given.get("text", "").strip()
    words = ["faults", "report", f"--device={device}", f"--code={code}", f"--{assertion}", f"--text={text}"]
    return [*words, f"--node={node}"] if node else words


async def typed(home: Home, words: list[str]) -> tuple[bool, str]:
    """Run one command of holdfast for a state directory.

    Return whether it succeeded, and its output. Raise `Forbidden`.
    """
    if not home.mine:
        raise Forbidden(f"{home.path} belongs to another user, who alone can change what it holds", hint="/devices")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *words,
        env={**os.environ, "HOLDFAST_HOME": str(home.path)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except TimeoutError:
        process.kill()
        return False, f"it took longer than {LIMIT_S:g} s and was ended"
    return process.returncode == 0, said.decode("utf-8", "replace").strip()


def _must_be_same_user(request: Request) -> None:
    """Raise `Forbidden` if another user of this machine sent the request.

    Another user may have seen the link with the token, but the kernel knows the user of a connection.
    """
    client = request.client
    if client is None or not is_loopback(client.host):
        return  # the user opened the pages to other machines on purpose, so the token alone decides
    server = request.scope.get("server") or (client.host, 0)
    owner = _user_of((client.host, client.port), (str(server[0]), int(server[1] or 0)))
    if owner not in (0, os.getuid()):
        whose = "of another user" if owner is not None else "of no user that the kernel knows"
        raise Forbidden(f"the connection is {whose}; only uid {os.getuid()} and root may change something", hint="/")


def _user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the uid of the socket at the client's end of this connection, on this machine; None: not found.

    Both ends count: another socket may have the same port at another address of this machine, the server's among them.
    """
    # An IPv4 connection of a socket for IPv6 is listed by its mapped address.
    wanted = [[_in_proc(end, before) for end in (client, server)] for before in ("", "::ffff:")]
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, *rest = line.split()
            if [local, remote] in wanted and state == "01":
                return int(rest[3])
    return None


def _in_proc(end: tuple[str, int], before: str) -> str:
    """Return an address and port as /proc/net/tcp writes them: words of four bytes in this machine's order.

    `before`: the prefix that makes an IPv6 address of an IPv4 address.
    """
    address = ipaddress.ip_address(end[0].partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    packed = (ipaddress.ip_address(f"{before}{address}") if address.version == 4 else address).packed
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{end[1]:04X}"

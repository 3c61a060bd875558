"""Checks whether this machine's clock agrees with a reference.

Wrong clocks break certificates, tokens and time-stamped checkpoints. The reference is a time server (SNTP, RFC 4330),
or the file server of a shared directory, which dates each new file.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast import version
from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good

_NTP_EPOCH_S = 2_208_988_800
_DAY_S = 86_400.0


class ClockParams(Params, frozen=True, kw_only=True):
    reference: Annotated[str, Meta(description="a time server, host or host:port (SNTP)")] = ""
    shared: Annotated[str, Meta(description="a writable directory on shared storage, whose server's clock counts")] = ""
    max_offset_s: Annotated[float, Meta(gt=0, description="how far the clocks may be apart")] = 1.0
    wait_s: Annotated[float, Meta(gt=0, description="how long a time server may take to answer")] = 2.0


class Clock(BuiltIn):
    name = "clock"
    question = "Does this machine's clock agree with a reference, or at least with reason?"
    cost = "1 ms, or one round trip to the reference"
    blame = "platform"
    Params = ClockParams
    retries = 1

    def look(self, context: Context) -> Verdict:
        params: ClockParams = self.params
        figures: dict[str, float] = {}
        problems: list[str] = []
        installed = Path(version.__file__).stat().st_mtime
        if time.time() < installed - _DAY_S:
            problems.append(f"its clock says {_date(time.time())}, before holdfast was installed ({_date(installed)})")
        offsets: list[tuple[str, float]] = []
        if params.reference:
            try:
                offsets.append((params.reference, sntp_offset(params.reference, params.wait_s)))
            except (OSError, ValueError) as error:
                return self.unsure(context, f"the time server {params.reference} gave no answer: {error}")
        if params.shared:
            try:
                offsets.append((f"the server of {params.shared}", file_offset(params.shared)))
            except OSError as error:
                return self.unsure(context, f"no file could be made in {params.shared}: {error.strerror}")
        for name, offset in offsets:
            figures[f"offset_s to {name}"] = round(offset, 3)
            if abs(offset) > params.max_offset_s:
                side = "behind" if offset > 0 else "ahead of"
                problems.append(f"its clock is {abs(offset):.2f} s {side} {name}, {params.max_offset_s:g} s allowed")
        if problems:
            return self.bad(context, problems, "Start a time service (chrony, systemd-timesyncd) and let it step once.")
        return good("", figures)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def sntp_offset(server: str, wait_s: float) -> float:
    """Return the server's clock minus this machine's, in seconds, less half the round trip time.

    Raises OSError if no server answers within `wait_s` seconds, and ValueError if the answer is no time.
    """
    host, _, port = server.partition(":")
    for family, kind, _, _, address in socket.getaddrinfo(host, int(port or 123), type=socket.SOCK_DGRAM):
        with socket.socket(family, kind) as probe:
            probe.settimeout(wait_s)
            sent = time.time()
            probe.sendto(b"\x23" + 47 * b"\0", address)
            answer = probe.recv(512)
            got = time.time()
        if len(answer) < 48:
            raise ValueError(f"{len(answer)} bytes, expected 48")
        seconds, fraction = struct.unpack("!II", answer[40:48])
        if seconds == 0:
            raise ValueError("it does not know the time itself")
        return float(seconds - _NTP_EPOCH_S + fraction / 2**32 - (sent + got) / 2)
    raise OSError(f"{host} has no address")


def file_offset(folder: str) -> float:
    """Return the clock of the file server of `folder` minus this machine's, in seconds. Raises OSError if `folder`
    cannot be written."""
    import tempfile  # imported late, because it costs 5 ms and only a shared directory needs it

    before = time.time()
    handle, path = tempfile.mkstemp(prefix=".holdfast-clock-", dir=folder)
    try:
        os.write(handle, b"\n")
        os.fsync(handle)
        after = time.time()
        stamp = os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        Path(path).unlink(missing_ok=True)
    return 0.0 if before - 0.1 <= stamp <= after + 0.1 else stamp - (before + after) / 2

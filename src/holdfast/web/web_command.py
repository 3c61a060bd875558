"""`holdfast web`: serve pages about jobs and devices to this machine's browser."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from importlib.util import find_spec
from pathlib import Path

import click

from holdfast.cli.options.shared_options import home as default_home
from holdfast.cli.output.printing import print_line
from holdfast.clock import Clock
from holdfast.errors import BadUsage
from holdfast.web.page_parts import home_of, is_loopback

PORT = 8417
_EXTRA = ("starlette", "uvicorn", "jinja2")


@click.command()
@click.option("--home", "homes", multiple=True, metavar="DIR", help="A state directory; several may be given.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--insist", is_flag=True, help="Listen at a --host that other machines reach, without encryption.")
def command(homes: tuple[str, ...], port: int, host: str, insist: bool) -> None:
    """Serve pages about jobs and devices to a browser of this machine. The link that is printed lets in.

    It is a process of its own and only reads: it cannot slow or endanger a job. Ctrl-C ends it.
    """
    _must_be_installed()
    from holdfast.web.server_process import serve  # this module needs the optional packages

    if not is_loopback(host) and not insist:
        raise BadUsage(
            f"--host {host} lets other machines reach these pages, and what they send is not encrypted; "
            "a tunnel of ssh is safe",
            hint=f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}, or holdfast web --host {host} --insist",
        )
    places = [_given(each) for each in dict.fromkeys(homes)] or [_default()]
    found = tuple(home_of(place, os.getuid()) for place in places)
    listening = _listening(host, port)
    token = secrets.token_urlsafe(24)
    shown = f"[{host}]" if ":" in host else host
    names = () if is_loopback(host) else (host, socket.gethostname(), socket.getfqdn())
    with listening:
        port = listening.getsockname()[1]
        print_line(f"http://{shown}:{port}/?token={token}")
        print_line("holdfast: open this link in a browser; Ctrl-C ends the server", err=True)
        serve(listening, homes=found, token=token, port=port, clock=Clock().now, names=names)


def _must_be_installed() -> None:
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise BadUsage(
            f"`holdfast web` needs {', '.join(missing)}, and this Python does not have it",
            hint="pip install 'holdfast-run[web]'",
        )


def _given(typed: str) -> Path:
    place = Path(typed).expanduser().absolute()
    if not place.is_dir():
        what = "is no directory" if place.exists() else "does not exist"
        raise BadUsage(f"--home {typed} {what}; a state directory of holdfast was expected", hint="holdfast doctor")
    if not os.access(place, os.R_OK | os.X_OK):
        raise BadUsage(f"--home {typed} cannot be read: permission denied", hint=f"ls -ld {place}")
    return place


def _default() -> Path:
    place = default_home()
    if not place.is_dir():
        raise BadUsage(
            f"the state directory {place} does not exist: no job has run with its state there",
            hint="holdfast run SCRIPT, or holdfast web --home DIR",
        )
    return place


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise BadUsage if it cannot be opened."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family[0], socket.SOCK_STREAM)
    except OSError as error:
        raise BadUsage(f"--host {host}: {error.strerror or error}", hint="holdfast web --host 127.0.0.1") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(family[4])
        made.listen(64)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise BadUsage(
                f"port {port} is in use on {host}: most likely by another `holdfast web`", hint="holdfast web --port 0"
            ) from error
        said = (error.strerror or str(error)).lower()
        hint = "holdfast web --port 0" if error.errno == errno.EACCES else "holdfast web --host 127.0.0.1"
        raise BadUsage(f"{host}:{port} cannot be listened at: {said}", hint=hint) from error
    return made

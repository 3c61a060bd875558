"""Runs under the tree's Python, in any image: each thing that holdfast uses of Python and of its packages, tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FOUND: dict[str, str] = {}


def tried(try_it: Callable[[], None]) -> Callable[[], None]:
    try:
        try_it()
        FOUND[try_it.__name__] = "ok"
    except BaseException as error:  # each of them is told
        FOUND[try_it.__name__] = f"{type(error).__name__}: {error}"
    return try_it


@tried
def a_python_of_its_own_kind_is_started() -> None:
    code = "import sys, os; print(sys.flags.isolated, 'LC_ALL' in os.environ)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n", done.stdout


@tried
def threads_and_pools() -> None:
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]


@tried
def the_kernel_is_called_by_name() -> None:
    from holdfast.act.linux import become_subreaper

    assert become_subreaper()


@tried
def processes_by_descriptor() -> None:
    pid = os.fork()
    if not pid:
        os._exit(3)
    fd = os.pidfd_open(pid)
    ended = os.waitid(os.P_PIDFD, fd, os.WEXITED)
    assert ended is not None and ended.si_status == 3


@tried
def the_journals_database() -> None:
    import sqlite3

    assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)


@tried
def patterns() -> None:
    import re2

    assert re2.search(r"b+", "abbc")[0] == "bb"


@tried
def settings_and_messages() -> None:
    import msgspec
    import yaml

    assert msgspec.json.decode(b"[1]") == [1]
    assert yaml.load("a: [1]", yaml.CSafeLoader) == {"a": [1]}


@tried
def the_identity_of_a_node() -> None:
    import ssl

    from holdfast.wire import peer_identity

    assert peer_identity and ssl.OPENSSL_VERSION


@tried
def names_of_hosts() -> None:
    import socket

    socket.getaddrinfo("127.0.0.1", 80)
    if Path("/etc/hosts").exists():
        assert socket.getaddrinfo("localhost", 80, socket.AF_INET)[0][4] == ("127.0.0.1", 80)


@tried
def users() -> None:
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        assert os.getuid() != 0


@tried
def every_letter() -> None:
    assert sys.getfilesystemencoding() == sys.stdout.encoding == "utf-8"


@tried
def the_catalogue_of_exits() -> None:
    from holdfast.catalogue.exit_rows import load

    assert load()


print(json.dumps(FOUND))

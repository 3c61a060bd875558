"""`holdfast notify --test`: sends a test message to the addresses of the settings."""

from __future__ import annotations

import os

import click

from holdfast.cli.options.shared_options import home
from holdfast.cli.output.printing import print_line


@click.command()
@click.option("--test", is_flag=True, help="Send a test message, and print which addresses accept it.")
@click.option("--notify", metavar="URL,URL", help="apprise's addresses, instead of those in the settings.")
def command(test: bool, notify: str | None) -> None:
    """Send a test message to all receivers of notices. Exit status 1 if an address does not accept it."""
    import socket
    import sys

    from holdfast.errors import BadUsage
    from holdfast.launch.notice_check import notice_problems, send_test
    from holdfast.model.notice_messages import NoticePlan
    from holdfast.settings.resolved_settings import resolve

    if not test:
        raise BadUsage("holdfast notify sends only a test so far: --test was expected", hint="holdfast notify --test")
    settings = resolve({"notify": notify}, os.environ, home())
    plan = NoticePlan(
        notify=settings.names("notify") or (),
        on_event=settings.text("on-event") or "",
        on_end=settings.text("on-end") or "",
        limit_s=settings.number("notice-timeout") or 30.0,
    )
    if not plan.notify:
        raise BadUsage(
            "no address is set: --notify, HOLDFAST_NOTIFY or `notify` in a file of settings was expected",
            hint="HOLDFAST_NOTIFY=slack://… holdfast notify --test",
        )
    problems = list(notice_problems(plan, os.environ))
    failed = any(problem.certain for problem in problems)
    for problem in problems:
        print_line(f"{problem.text}\n  try: {problem.hint}", err=True)
    if failed:
        sys.exit(1)
    for number, url in enumerate(plan.notify, 1):
        why = send_test(url, socket.gethostname(), plan.limit_s)
        scheme = url.partition("://")[0]
        print_line(f"address {number} ({scheme}://***): " + (f"did not: {why}" if why else "took the message"))
        failed |= bool(why)
    sys.exit(1 if failed else 0)

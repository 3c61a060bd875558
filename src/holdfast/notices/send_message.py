"""The program `python -m holdfast.notices.send_message` sends one message with apprise, and prints a line on failure.

With `--parse` it sends nothing, and only reports whether apprise accepts the addresses.

An address is a secret. apprise logs complete addresses, so its logs are never printed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from holdfast.model.noun_base import Noun
from holdfast.notices import message_grouping
from holdfast.untrusted import json_as


class OutgoingMessage(Noun, frozen=True, kw_only=True):
    """The message to send, as JSON on standard input."""

    urls: tuple[str, ...]
    title: str
    body: str
    home: str = ""
    job: str = ""
    #: A key that is the same for the same cause in other jobs. If empty, the message is always sent.
    key: str = ""


def main() -> int:
    """Send the message. Return the exit status: 0 if every address accepted it."""
    message = json_as(sys.stdin.buffer.read(), OutgoingMessage)
    try:
        import apprise  # imported late: the package is optional
    except ImportError:
        return _failed("apprise is not installed: pip install 'holdfast-run[notify]'")
    logging.disable(logging.CRITICAL)
    if sys.argv[1:] == ["--parse"]:
        strange = [_named(number, url) for number, url in enumerate(message.urls, 1) if not apprise.Apprise().add(url)]
        return _failed(f"{', '.join(strange)}: no address that apprise knows") if strange else 0
    others = message_grouping.enter(Path(message.home), message.key, message.job) if message.key else ""
    if others is None:
        return 0
    body = f"{message.body}\n{others}" if others else message.body
    failed = []
    for number, url in enumerate(message.urls, 1):
        target = apprise.Apprise()
        known = target.add(url)
        # No service may interpret the text as HTML or Markdown, because it comes from users and programs.
        if not known or not target.notify(title=message.title, body=body, body_format=apprise.NotifyFormat.TEXT):
            failed.append(f"{_named(number, url)} {'was not taken' if known else 'is no address that apprise knows'}")
    if failed and message.key:
        message_grouping.failed(Path(message.home), message.key, message.job)
    return _failed("; ".join(failed)) if failed else 0


def _named(number: int, url: str) -> str:
    """Return a name for an address that reveals no secret."""
    return f"address {number} ({url.partition('://')[0] if '://' in url else '?'}://***)"


def _failed(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

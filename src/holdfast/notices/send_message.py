"""`python -m holdfast.notices.send_message`: sends one message with apprise. It prints one line if that fails.

With `--parse` it sends nothing, and only tells whether apprise knows the addresses.

apprise logs complete addresses, and an address is a secret: its logs are never printed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from holdfast.model.noun_base import Noun
from holdfast.notices import message_grouping
from holdfast.untrusted import json_as


class OutgoingMessage(Noun, frozen=True, kw_only=True):
    """The content of standard input."""

    urls: tuple[str, ...]
    title: str
    body: str
    home: str = ""
    job: str = ""
    #: Equal for the same cause in other jobs; empty: the message is always sent.
    key: str = ""


def main() -> int:
    """Send the message and return the exit status: 0 if every address accepted it."""
    message = json_as(sys.stdin.buffer.read(), OutgoingMessage)
    try:
        import apprise  # the package is an extra
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
        # The text comes from users and programs: no service may interpret it as HTML or Markdown.
        if not known or not target.notify(title=message.title, body=body, body_format=apprise.NotifyFormat.TEXT):
            failed.append(f"{_named(number, url)} {'was not taken' if known else 'is no address that apprise knows'}")
    if failed and message.key:
        message_grouping.failed(Path(message.home), message.key, message.job)
    return _failed("; ".join(failed)) if failed else 0


def _named(number: int, url: str) -> str:
    """Return a name for an address that shows no secret of it."""
    return f"address {number} ({url.partition('://')[0] if '://' in url else '?'}://***)"


def _failed(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Finds out whether a position of a shell script is in quotes, in a comment or in a here-document.

The parser knows the syntax common to POSIX and bash, but no keywords. So a `)` of `case` inside `$( … )` wrongly ends
the `$(`. This module does no input or output.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Quote(enum.Enum):
    """The quoting in which a shell reads a character."""

    PLAIN = "unquoted"
    SINGLE = "'…'"
    DOUBLE = '"…"'
    ANSI = "$'…'"
    COMMENT = "# …"
    DOCUMENT = "<<END"
    LITERAL = "<<'END'"


def quotes_at(text: str, places: Sequence[int]) -> list[Quote]:
    """Return the quoting at these positions of the text, which must be in rising order."""
    return list(_Scan(text).until(places))


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        #: The open quotes and brackets, the innermost last, each with its closing bracket or "".
        self._stack: list[tuple[Quote, str]] = [(Quote.PLAIN, "")]
        #: The here-documents that begin after this line, each with its end word, whether leading tabs are removed, and
        #: whether the text is literal.
        self._documents: list[tuple[str, bool, bool]] = []

    def until(self, places: Sequence[int]) -> list[Quote]:
        found = []
        for place in places:
            while self._at < place:
                self._step(place)
            found.append(self._stack[-1][0])
        return found

    def _step(self, place: int) -> None:
        text, at = self._text, self._at
        letter = text[at]
        quote, closing = self._stack[-1]
        self._at = at + 1
        match quote:
            case Quote.SINGLE:
                if letter == "'":
                    self._stack.pop()
            case Quote.ANSI:
                if letter == "\\":
                    self._at += 1
                elif letter == "'":
                    self._stack.pop()
            case Quote.COMMENT:
                if letter == "\n":
                    self._stack.pop()
                    self._line_ended()
            case Quote.DOUBLE:
                if letter == "\\":
                    self._at += 1
                elif letter == '"':
                    self._stack.pop()
                elif text.startswith("$(", at):
                    self._open(Quote.PLAIN, ")", 2)
            case Quote.DOCUMENT | Quote.LITERAL:
                self._document(closing, letter)
            case Quote.PLAIN:
                self._plain(letter, closing)

    def _plain(self, letter: str, closing: str) -> None:
        text, at = self._text, self._at - 1
        if letter == "\\":
            self._at += 1
        elif letter == "'":
            self._stack.append((Quote.SINGLE, ""))
        elif letter == '"':
            self._stack.append((Quote.DOUBLE, ""))
        elif text.startswith("$'", at):
            self._open(Quote.ANSI, "", 2)
        elif text.startswith("$(", at):
            self._open(Quote.PLAIN, ")", 2)
        elif letter == "(":
            self._stack.append((Quote.PLAIN, ")"))
        elif letter == closing:
            self._stack.pop()
        elif letter == "#" and (at == 0 or text[at - 1] in " \t\n;&|("):
            self._stack.append((Quote.COMMENT, ""))
        elif text.startswith("<<<", at):
            self._at += 2
        elif text.startswith("<<", at):
            self._announce(at + 2)
        elif letter == "\n":
            self._line_ended()

    def _open(self, quote: Quote, closing: str, letters: int) -> None:
        self._stack.append((quote, closing))
        self._at += letters - 1

    def _announce(self, at: int) -> None:
        """Parse the start of a here-document (`<<END`, `<<-'END'`), whose text begins after this line."""
        text = self._text
        tabs = text.startswith("-", at)
        at += tabs
        while text[at : at + 1] in (" ", "\t") and at < len(text):
            at += 1
        end, literal = "", False
        while at < len(text) and not text[at].isspace() and text[at] not in ";&|()<>":
            if text[at] in "'\"\\":
                literal = True
            else:
                end += text[at]
            at += 1
        self._at = at
        if end:
            self._documents.append((end, tabs, literal))

    def _line_ended(self) -> None:
        if self._documents:
            end, tabs, literal = self._documents.pop(0)
            self._stack.append((Quote.LITERAL if literal else Quote.DOCUMENT, f"\t{end}" if tabs else end))
            self._end_of_document()

    def _document(self, closing: str, letter: str) -> None:
        if letter == "\\":
            self._at += self._stack[-1][0] is Quote.DOCUMENT and not self._text.startswith("\n", self._at)
        elif letter == "\n":
            self._end_of_document()

    def _end_of_document(self) -> None:
        """End the here-document if the next line is its end word."""
        closing = self._stack[-1][1]
        stop = self._text.find("\n", self._at)
        line = self._text[self._at : stop if stop >= 0 else len(self._text)]
        if (line.lstrip("\t") if closing.startswith("\t") else line) == closing.lstrip("\t"):
            self._stack.pop()
            self._at += len(line)

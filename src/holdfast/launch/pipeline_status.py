"""Finds pipes in a shell's text that hide a failure: without `pipefail`, a shell returns the status of a pipe's last
program, even if the first program failed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from holdfast.lazy_pattern import Lazy
from holdfast.runtime.shell_quoting import Quote, quotes_at

SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
#: Limit on the length of a script that is examined, in bytes. For a longer one the warning is left out.
MOST_BYTES = 65_536
#: Programs whose exit status does not matter, because they only list or print something.
_HARMLESS_SOURCES = frozenset({
    ":", "[", "[[", "awk", "cat", "cd", "cut", "date", "df", "dirname", "du", "echo", "env", "find", "free", "grep",
    "head", "hostname", "hwloc-ls", "id", "jq", "ls", "lscpu", "lspci", "nproc", "nvidia-smi", "printf", "ps",
    "pwd", "readlink", "realpath", "rocm-smi", "scontrol", "sed", "seq", "set", "sort", "squeue", "tail", "test",
    "tr", "true", "type", "uname", "uniq", "wc", "which", "who", "yes",
})  # fmt: skip
#: Words that may precede a program, or a whole pipe.
_PREFIX_WORDS = frozenset({"then", "do", "else", "time", "exec", "command", "nohup"})
#: Words after which a pipe's status does not matter: it is only a condition (`if`, `while`), or no command follows
#: (`case`, `for`).
_STATUS_UNUSED = frozenset({"!", "if", "elif", "while", "until", "case", "for", "select", "function"})
#: Words that end a group of commands. The group's output may go into a pipe.
_GROUP_ENDS = frozenset({"}", "done", "fi", "esac"})
_PIPE = Lazy(r"(?<![|>])\|&?(?!\|)")
_PIPELINE = Lazy(r"(?:(?!&&|\|\||;|\n|(?<![<>|])&(?![>&])).)+", re.DOTALL)
_SUBSTITUTION = Lazy(r"[$_]\([^()]*\)|`[^`]*`|\$\{[^{}]*\}")
_PATTERN = Lazy(r"\s*\(?[^()\s|]+(?:\s*\|\s*[^()\s|]+)*\)\s*\S")


def pipe_warning(command: Sequence[str], cwd: Path) -> str:
    """Return a sentence about the first pipe of a worker's command that hides a failure, or "" if there is none.

    The shell's text follows `-c`, or is in the script that the shell reads. `cwd` is the directory in which the command
    starts.
    """
    text, place = shell_text(command, cwd)
    if "|" not in text or "pipefail" in text or "PIPESTATUS" in text or "pipefail" in command:
        return ""
    if (pair := hiding_pipe(text)) is None:
        return ""
    first, last = pair
    return (
        f"{place} has a pipe that ends with the status of {last}: a failure of {first} counts as a success; write "
        "`set -o pipefail` (bash) in front of it"
    )


def hiding_pipe(text: str) -> tuple[str, str] | None:
    """Return the first and the last program of the first pipe that hides a failure."""
    text = re.sub(r"\\\n|(?<=\|)\s*\n", lambda found: " " * len(found[0]), text)
    plain = _plain(text)
    for pipeline in _PIPELINE.finditer(plain):
        pipes = list(_PIPE.compiled.finditer(plain, *pipeline.span()))
        if not pipes or _PATTERN.match(pipeline[0]):
            continue
        first = _program(text, plain, pipeline.start(), pipes[0].start())
        last = _program(text, plain, pipes[-1].end(), pipeline.end())
        if first and last and first not in _HARMLESS_SOURCES and first not in _STATUS_UNUSED:
            return first if first not in _GROUP_ENDS else "the commands before it", last
    return None


def commands_of(text: str) -> list[list[str]]:
    """Return the words of each command of a shell's text, as far as they can be split without a shell."""
    text = re.sub(r"\\\n|(?<=\|)\s*\n", lambda found: " " * len(found[0]), text)
    plain = _plain(text)
    found: list[list[str]] = []
    for pipeline in _PIPELINE.finditer(plain):
        ends = [*(pipe.start() for pipe in _PIPE.compiled.finditer(plain, *pipeline.span())), pipeline.end()]
        part = text[pipeline.start() : ends[0]].strip(" \t(){}")
        try:
            words = shlex.split(part)
        except ValueError:
            continue
        words = words[: next((i for i, word in enumerate(words) if re.match(r"\d*[<>]", word)), None)]
        while words and words[0] in (*_PREFIX_WORDS, *_STATUS_UNUSED):
            words = words[1:]
        found += [words] if words else []
    return found


def _plain(text: str) -> str:
    """Replace quoted text, comments and substitutions, so that they do not look like syntax. The length of the text
    stays the same."""
    quotes = quotes_at(text, range(len(text)))
    plain = "".join(map(_plain_letter, text, quotes, [*quotes[1:], Quote.PLAIN]))
    while (next_plain := _SUBSTITUTION.sub(lambda found: "_" * len(found[0]), plain)) != plain:
        plain = next_plain
    return plain


def _plain_letter(letter: str, quote: Quote, next_quote: Quote) -> str:
    match quote:
        case Quote.PLAIN:
            return " " if letter == "#" and next_quote is Quote.COMMENT else letter
        case Quote.COMMENT:
            return "\n" if letter == "\n" else " "
        case Quote.DOCUMENT | Quote.LITERAL:
            return " "
        case Quote.SINGLE | Quote.DOUBLE | Quote.ANSI:
            return "_"
        case _:
            assert_never(quote)


def _program(text: str, plain: str, start: int, end: int) -> str:
    """Return the name of the program between two positions, without the words and assignments that precede it."""
    for word in re.finditer(r"[^\s(){]+|\{\S+", plain[start:end]):
        if word[0] not in _PREFIX_WORDS and not re.match(r"[A-Za-z_]\w*=", word[0]):
            return text[start + word.start() : start + word.end()].strip("\"'").rpartition("/")[2]
    return ""


def shell_text(command: Sequence[str], cwd: Path) -> tuple[str, str]:
    """Return the text that a shell reads, and a name for this text that fits into a sentence. Both are "" if no shell
    runs."""
    for i, word in enumerate(command):
        if word.rpartition("/")[2] not in SHELLS:
            continue
        for j, option in enumerate(command[i + 1 :], i + 1):
            if re.fullmatch(r"-[a-z]*c", option):
                return (command[j + 1] if j + 1 < len(command) else ""), "the command"
            if not option.startswith(("-", "+")) and command[j - 1] != "-o":
                return _script(cwd / option), f"the script {option}"
        return "", ""
    return (_script(cwd / command[0], by_line=True), f"the script {command[0]}") if command else ("", "")


def _script(path: Path, *, by_line: bool = False) -> str:
    """Return a script's text. Return "" if it cannot be read, or, with `by_line`, if its `#!` line names no shell."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    line = text.partition("\n")[0]
    named = line.startswith("#!") and any(word.rpartition("/")[2] in SHELLS for word in line[2:].split())
    return text if named or not by_line else ""

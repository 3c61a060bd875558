"""Parses Python's tracebacks in a log into chains of exceptions with types, messages and frames.

The parser is lenient: the header may be cut off, frames may be missing, and an exception may have no traceback.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.explain.logs.log_lines import Line
from holdfast.lazy_pattern import Lazy

HEADER = Lazy(r"^\s*(?:[+|]\s*)*(?:traceback\s*: )?(?:Exception Group )?Traceback \(most recent call last\)")
_FRAME = Lazy(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:, in (?P<func>.+))?$')
_LINK = Lazy(r"^\s*(?:The above exception was the direct cause|During handling of the above exception)")
_TYPE = Lazy(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?P<arg>\([^()]{0,80}\))?(?::(?:\s+(?P<message>.*)|$)|(?P<bare>\s*$))"
)
_EXCEPTION_NAME = Lazy(
    r"(?:Error|Exception|Interrupt|Exit|Warning|Failure|Fault|Timeout|Iteration|Group|Died|Abort|NotFound|Refused|Expired"
    r"|Unavailable|OutOfMemory|Failed|Invalid\w*|Rejected|Denied|Cancelled|Crashed|Killed|Empty|Full|_queue\.\w+|Enabled"
    r"|BadZip(?:F|f)ile|BadGzipFile|(?:socket|zlib|struct|select|ssl|binascii)\.(?:error|timeout|gaierror|herror))$"
)
_GROUP_EDGE = Lazy(r"^\s*(?:\+-\+-+.*|\+-{3,}.*|[+|] ?)")
_IGNORED = Lazy(r"^\s*Exception ignored in|^\s*--- Logging error ---")
_THREAD = Lazy(r"^\s*Exception in thread ")
_GOES_ON = Lazy(r"(?i)^\W{0,8}(?:\w{1,20}[ :|-]{1,3})?(?:global_)?(?:step|epoch|iter(?:ation)?|batch)\W{0,3}\d|it/s\b")
#: Lines of launchers, shells and experiment trackers. Such lines may follow an exception, but are no part of its
#: message.
_SOMEBODY_ELSE = Lazy(
    r"^(?:srun|slurmstepd|salloc|sbatch|scontrol|mpirun|mpiexec|prterun|orterun|wandb|pdsh@\S+|kubectl|bash|sh|g?make)"
    r"(?:\[\d+\])?: "
    r"|^(?:mpirun|prterun|Primary job) |^\+ |^-{20,}$|^={20,}$|^\[entrypoint\]|^\S+: line \d+: |^\(raylet\)"
)
_TORCH_NPU = Lazy(r"^\(PID:\d+, Device:|^ERR\d{5} |^E[A-Z]\d{4}: \[PID: ")
#: Beginnings of lines that continue the exception message of the line before, in messages of common libraries.
_CONTINUES = Lazy(
    r"CUDA kernel errors might|For debugging,? (?:consider|set|use)|Compile with|Device-side assert"
    r"|Exception raised from|frame #\d|C\+\+ CapturedTraceback|Search for `|nccl[A-Z]\w+Error|Last error:"
    r"|Parameter indices|making sure all|In addition,? you|If (?:you|reserved|this)\b|Since `"
    r"|This (?:error|may|can|could|is usually|often|typically)\b|Please |You (?:can|may|should|need)|Set `?[A-Z_]+=?"
    r"|To (?:fix|resolve|suppress|avoid) |(?:HINT|Hint|Tip|NOTE|Note): |Did you mean|Of the allocated|Make sure "
    r"|\[(?:ERROR|PID)|E[A-Z]\d{4}|EI\d{4}|\^+$"
)
#: Code from a traceback that was pasted without its indentation. Such a line names no exception.
_CODE = Lazy(r"^(?:self|cls)\.|^\w+: *[\w.\[\], |]+ = |[({\[,]$|^\w[\w.]*\(")
_RAISE = Lazy(r"^\s*raise (?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)\((?P<rest>.*)$")
_LITERAL = Lazy(r"""[rRbBfF]{0,2}(?P<quote>\"\"\"|'|\")(?P<text>.*?)(?:(?P=quote)|$)""")
_PANIC = Lazy(r"^(?:panic|fatal error): (?P<message>.+)")
_GOROUTINE = Lazy(r"^goroutine \d+ \[")
_JAVA = Lazy(r"^(?P<lead>Exception in thread \"[^\"]*\" |Caused by: )(?P<rest>(?:[a-z]\w*\.)+[A-Z]\w*.*)$")
_GROUPS = ("ExceptionGroup", "BaseExceptionGroup")
_LIBRARY = Lazy(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/python\d\.\d+/|^<frozen |^<string>$|/torch/|/opt/conda/lib/"
)


def is_users(file: str) -> bool:
    """Return whether a frame's file belongs to the user's code and not to a library."""
    return _LIBRARY.search(file) is None


class Raised(msgspec.Struct):
    """One exception of a chain."""

    type: str
    message: str
    #: The line that names the exception.
    line: Line
    #: Index, in the stream, of the exception's first line: the traceback's header if there is one.
    first: int
    #: Index, in the stream, of the last line of the exception's message.
    last: int
    #: Frames as (file, line, function), outermost first.
    frames: list[tuple[str, int, str]] = msgspec.field(default_factory=list)
    #: All lines of the message, beginning with the line that names the exception.
    lines: list[Line] = msgspec.field(default_factory=list)
    #: Whether the type comes from the `raise` line in the source, because the log ends before the exception's line.
    guessed: bool = False
    #: Whether the innermost frame is a `raise` statement.
    on_purpose: bool = False

    @property
    def short(self) -> str:
        return self.type.rsplit(".", 1)[-1]

    @property
    def told(self) -> list[Line]:
        """The line that names the exception, and the other lines that certainly belong to its message.

        A log does not mark the end of a long message.
        """
        kept = self.lines[:1]
        text = kept[0].text if kept else ""
        for line in self.lines[1:]:
            own = line.text[:1] in " \t|+" or text.rstrip().endswith((":", ",")) or _open(text)
            if not own and not _CONTINUES.match(line.text):
                break
            kept.append(line)
            text = f"{text}\n{line.text}"
        return kept

    @property
    def unwrapped(self) -> str:
        """The line that names the exception, joined with the next lines if a terminal wrapped it; empty: the line
        was not wrapped."""
        whole = self.line.text
        for before, line in zip(self.lines, self.lines[1:6], strict=False):
            text = line.text.strip()
            broken = (text[:1].islower() or text[:1].isdigit()) and before.text.rstrip()[-1:] not in (
                ".",
                ":",
                ";",
                "!",
                "?",
                ")",
                "'",
                '"',
            )
            if not broken or line.text[:1] in " \t" or exception_name(text) is not None:
                break
            whole = f"{whole} {text}"
        return whole if whole != self.line.text else ""

    @property
    def words(self) -> str:
        """The lines of the message that certainly belong to the exception."""
        rest = [_ungroup(line.text) for line in self.told[1:]]
        return "\n".join([self.message.split("\n", 1)[0], *rest]).strip()

    @property
    def user_frame(self) -> tuple[str, int, str] | None:
        """The innermost frame in the user's code; None if all frames are in libraries."""
        return next((frame for frame in reversed(self.frames) if is_users(frame[0])), None)


class Chain(msgspec.Struct):
    """Linked exceptions, from the original exception to the last."""

    raised: list[Raised]
    #: For each link: True if the later exception was raised while the earlier one was handled; False if the earlier one
    #: is its direct cause (`raise … from`).
    during: list[bool] = msgspec.field(default_factory=list)
    #: Whether Python ignored the exception ("Exception ignored in"), so that the program continued.
    ignored: bool = False
    thread: bool = False

    @property
    def first(self) -> int:
        return min(raised.first for raised in self.raised)

    @property
    def last(self) -> int:
        return max(raised.last for raised in self.raised)

    @property
    def outer(self) -> Raised:
        return self.raised[-1]

    def link(self, at: int) -> str:
        """Return how the exception `at` of the chain led to the next one: `because`, or `while handling` if the next
        one arose by accident, such as in a clean-up."""
        inner, outer = self.raised[at], self.raised[at + 1]
        accident = at < len(self.during) and self.during[at]
        if accident and outer.on_purpose and inner.frames and outer.frames:
            # If both exceptions belong to one function (`except KeyError: raise ConfigError(...)`), the program
            # replaced the exception on purpose.
            accident = (inner.frames[0][0], inner.frames[0][2]) != (outer.frames[-1][0], outer.frames[-1][2])
        return "while handling" if accident else "because"


def exception_name(text: str) -> tuple[str, str] | None:
    """Return type and message of a line that begins with the name of an exception; else None."""
    match = _TYPE.match(text)
    if match is None:
        return None
    name = match["type"]
    if not _EXCEPTION_NAME.search(name):
        return None
    if "." not in name and not name[0].isupper():
        return None
    return name + (match["arg"] or ""), match["message"] or ""


def chains(lines: Sequence[Line]) -> list[Chain]:
    """Return all chains of one stream, in the order of its lines."""
    found: list[Chain] = []
    index = 0
    pending: bool | None = None
    ignored = thread = False
    while index < len(lines):
        text = lines[index].text
        if _IGNORED.match(text):
            ignored = True
        elif _THREAD.match(text) and not _JAVA.match(text):
            thread = True
        elif _LINK.match(text):
            pending = "During handling" in text
        elif raised := _foreign(lines, index):
            # Java prints the outer exception first, and its cause after it.
            if found and text.startswith("Caused by: ") and index - found[-1].last <= _FAR:
                found[-1].raised.insert(0, raised)
                found[-1].during.insert(0, False)
            else:
                found.append(Chain([raised]))
            pending = None
            ignored = thread = False
            index = raised.last
        elif HEADER.match(text) or _FRAME.match(text) or (_bare_exception(text)):
            raised = _one(lines, index)
            if raised is not None:
                if found and found[-1].outer.short.startswith(_GROUPS) and _in_group(raised.line):
                    found[-1].raised.insert(-1, raised)
                    found[-1].during.append(False)
                elif pending is not None and found:
                    found[-1].raised.append(raised)
                    found[-1].during.append(pending)
                else:
                    found.append(Chain([raised], ignored=ignored, thread=thread))
                pending = None
                ignored = thread = False
                index = raised.last
            else:
                pending = None if HEADER.match(text) else pending
                # No exception follows these frames, so skip all of them.
                while index + 1 < len(lines) and _FRAME.match(lines[index + 1].text):
                    index += 1
        index += 1
    return found


#: Maximum number of lines between a Java exception and its cause.
_FAR = 200


def _foreign(lines: Sequence[Line], index: int) -> Raised | None:
    """Parse a Java exception or a Go panic that begins at this line; None: there is none."""
    text = lines[index].text
    if match := _JAVA.match(text):
        named = exception_name(match["rest"])
        return _message(lines, index, named, index, []) if named is not None else None
    if (match := _PANIC.match(text)) and any(_GOROUTINE.match(line.text) for line in lines[index + 1 : index + 6]):
        return Raised(text.partition(":")[0], match["message"], lines[index], index, index, [], [lines[index]])
    return None


def _bare_exception(text: str) -> bool:
    named = exception_name(_ungroup(text))
    return named is not None and not named[0].endswith("Warning")


def _open(text: str) -> bool:
    """Return whether the text has an unclosed bracket, so that the next line belongs to it."""
    return sum(map(text.count, "([{")) > sum(map(text.count, ")]}"))


def _ungroup(text: str) -> str:
    return _GROUP_EDGE.sub("", text) if text.lstrip()[:1] in "|+" else text


def _one(lines: Sequence[Line], start: int) -> Raised | None:
    """Parse the exception that begins at line `start`, with or without a traceback; None: no exception begins there."""
    frames: list[tuple[str, int, str]] = []
    index = start
    headed = HEADER.match(lines[start].text) is not None
    inside = _indent(lines[start].text) if headed and lines[start].text.lstrip()[:1] not in "|+" else 0
    if headed:
        index += 1
    seen = 0
    raising = -1
    while index < len(lines):
        text = _ungroup(lines[index].text)
        if inside and text[:inside].isspace():
            text = text[inside:]  # the whole traceback is indented, as in a launcher's summary
        if frame := _FRAME.match(text):
            frames.append((frame["file"], int(frame["line"]), frame["func"] or ""))
            raising = -1
        elif frames and _RAISE.match(text):
            raising = index
        elif raising >= 0 and (named := exception_name(text.lstrip())) and _indent(text) < _indent(lines[raising].text):
            return _message(lines, index, named, start, frames, on_purpose=raising >= 0)
        elif frames and text.strip() and text[0] not in " \t" and _is_source(lines, index, text):
            pass  # a source line of a traceback that was pasted without its indentation
        elif not text.strip() and raising == index - 1 and not _names_it(lines, index + 1, lines[raising].text):
            return _raising(lines, start, raising, frames)  # the traceback is cut behind its `raise` line
        elif not text.strip() or text[0] in " \t" or text.lstrip().startswith(("File ", "[Previous line repeated")):
            if HEADER.match(lines[index].text) and index != start:
                return None
        elif (headed or frames or index == start) and (named := _named(text, bool(frames))):
            return _message(lines, index, named, start, frames, on_purpose=raising >= 0)
        elif HEADER.match(text):
            return None
        else:
            # A line of another writer in the same stream. Skip up to 12 such lines.
            seen += 1
            if seen > 12 or not (headed or frames):
                return _raising(lines, start, raising, frames)
        index += 1
        if index - start > 2000:
            return None
    return _raising(lines, start, raising, frames)


def _names_it(lines: Sequence[Line], index: int, raising: str) -> bool:
    """Return whether the line `index` is in the same traceback as the line `raise X(…)` before it, or names X."""
    match = _RAISE.match(_ungroup(raising))
    text = _ungroup(lines[index].text) if index < len(lines) else ""
    named = exception_name(text)
    other = named is not None and match is not None and named[0].rsplit(".", 1)[-1] != match["type"].rsplit(".", 1)[-1]
    return not other


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _is_source(lines: Sequence[Line], index: int, text: str) -> bool:
    """Return whether the line is source code between a frame and either another frame or the exception."""
    if exception_name(text) is not None and not _CODE.search(text):
        return False
    above, below = lines[index - 1].text, lines[index + 1].text if index + 1 < len(lines) else ""
    if _FRAME.match(_ungroup(above)) is None:
        return False
    return _FRAME.match(below) is not None or exception_name(below) is not None


def _raising(lines: Sequence[Line], start: int, at: int, frames: list[tuple[str, int, str]]) -> Raised | None:
    """Make the exception for a traceback that ends with its line `raise X(…)`, from that line; None if that is
    impossible."""
    if at < 0 or not (match := _RAISE.match(_ungroup(lines[at].text))):
        return None
    literal = _LITERAL.match(match["rest"].strip())
    message = literal["text"] if literal else ""
    return Raised(match["type"], message, lines[at], start, at, frames, [lines[at]], guessed=True, on_purpose=True)


def _named(text: str, after_frames: bool) -> tuple[str, str] | None:
    if named := exception_name(text):
        return named
    if (
        after_frames
        and (match := _TYPE.match(text))
        and not match["bare"]
        and ("." in match["type"] or match["type"][0].isupper())
        and not _CODE.search(text)
    ):
        # After frames, any `Name: text` names the exception, even if the name has no ending such as Error.
        return match["type"] + (match["arg"] or ""), match["message"] or ""
    return None


def _message(
    lines: Sequence[Line],
    index: int,
    named: tuple[str, str],
    start: int,
    frames: list[tuple[str, int, str]],
    *,
    on_purpose: bool = False,
) -> Raised:
    naming = lines[index]
    kept = [naming]
    last = index
    blank = 0
    named = named[0], named[1] or _asserted(lines, index, named[0])
    for offset in range(index + 1, min(len(lines), index + 60)):
        line = lines[offset]
        text = _ungroup(line.text)
        if not text.strip():
            blank += 1
            if blank > 1:
                break
            continue
        if HEADER.match(line.text) or _LINK.match(text) or _IGNORED.match(text) or _FRAME.match(text):
            break
        # If this line has a time or a level and the first line has none, a logger wrote it, so the message has ended.
        stamped = (line.at is not None and naming.at is None) or (line.level and line.level != naming.level)
        if stamped and index + 4 >= offset and _TORCH_NPU.match(text):
            stamped = False  # torch_npu writes time stamps into its messages
        if stamped or (
            blank and text[0] not in " \t" and not text.startswith(("Exception raised from", "frame #", "Compile with"))
        ):
            break
        if text[0] not in " \t" and (
            exception_name(text) is not None or _GOES_ON.search(text) or _SOMEBODY_ELSE.match(text)
        ):
            break
        blank = 0
        kept.append(line)
        last = offset
    message = "\n".join([named[1], *(_ungroup(line.text) for line in kept[1:])]).strip()
    return Raised(named[0], message, naming, start, last, frames, kept, on_purpose=on_purpose)


def _asserted(lines: Sequence[Line], index: int, name: str) -> str:
    """Return the source line that the traceback shows for an AssertionError without a message; else empty."""
    if name != "AssertionError":
        return ""
    for line in reversed(lines[max(0, index - 2) : index]):
        text = _ungroup(line.text).strip()
        if text.startswith("assert "):
            return text
    return ""


def _in_group(line: Line) -> bool:
    return line.text[:1] in " \t" and line.text.lstrip().startswith("|")

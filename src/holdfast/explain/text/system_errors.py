"""The system's errors by number, because their words depend on the locale of the program that printed them."""

from __future__ import annotations

from holdfast.lazy_pattern import Lazy

#: Number of an error on Linux → its words in English, as glibc has them.
WORDS = {
    1: "Operation not permitted", 2: "No such file or directory", 5: "Input/output error", 7: "Argument list too long",
    8: "Exec format error", 11: "Resource temporarily unavailable", 12: "Cannot allocate memory",
    13: "Permission denied", 16: "Device or resource busy", 17: "File exists", 19: "No such device",
    20: "Not a directory", 21: "Is a directory", 22: "Invalid argument", 24: "Too many open files",
    26: "Text file busy", 27: "File too large", 28: "No space left on device", 30: "Read-only file system",
    32: "Broken pipe", 36: "File name too long", 98: "Address already in use", 99: "Cannot assign requested address",
    101: "Network is unreachable", 103: "Software caused connection abort", 104: "Connection reset by peer",
    107: "Transport endpoint is not connected", 110: "Connection timed out", 111: "Connection refused",
    112: "Host is down", 113: "No route to host", 116: "Stale file handle", 121: "Remote I/O error",
    122: "Disk quota exceeded",
}  # fmt: skip
#: Python's form, and Rust's: `Adresse wird bereits verwendet (os error 98)`.
_FORMS = (
    Lazy(r"\[Errno (?P<number>\d{1,3})\] (?P<words>[^:'\"\[\]]{3,160})"),
    Lazy(r"(?P<words>[^:'\"\[\]()]{3,160}) \(os error (?P<number>\d{1,3})\)"),
)
#: Words of a library that has an English text of its own for the number: `[Errno 111] Connect call failed`.
_ENGLISH = Lazy(
    r"(?i)\b(?:the|to|on|of|not|for|by|with|failed|error|call|connect|connection|unable|cannot|can't|while|was|timed|too"
    r"|denied|refused|unreachable|reset|reached|limit|exceeded|closed|broken|invalid|bad|address)\b"
)


def in_english(text: str) -> str:
    """Return a line in which the words of another locale beside an error's number are the English ones."""
    if "[Errno " not in text and "(os error " not in text:
        return text
    for form in _FORMS:
        found = form.search(text)
        words = WORDS.get(int(found["number"])) if found is not None else None
        if found is not None and words is not None and not _ENGLISH.search(found["words"]):
            lead = len(found["words"]) - len(found["words"].lstrip())
            return text[: found.start("words") + lead] + words + text[found.end("words") :]
    return text

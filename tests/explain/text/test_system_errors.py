"""The system's errors are known by number, whatever the locale of the program that printed them."""

from __future__ import annotations

import errno
import os

import pytest

from holdfast.explain import explain
from holdfast.explain.text.system_errors import WORDS, in_english
from holdfast.model.evidence import AttemptEvidence, LogExcerpt, WorkerEvidence


def test_the_words_are_those_of_the_system() -> None:
    assert {number: os.strerror(number) for number in WORDS} == WORDS


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ("OSError: [Errno 28] Auf dem Gerät ist kein Speicherplatz mehr verfügbar: '/scratch/a.pt'", "DiskFull"),
        ("OSError: [Errno 28] Aucun espace disponible sur le périphérique", "DiskFull"),
        ("OSError: [Errno 122] Se ha excedido la cuota de disco: '/home/ann/x'", "QuotaExceeded"),
        (
            "FileNotFoundError: [Errno 2] そのようなファイルはありません: '/data/a.bin'",
            "DataNotFound",
        ),
        ("PermissionError: [Errno 13] Keine Berechtigung: '/data/train.bin'", "PermissionDenied"),
        ("OSError: [Errno 116] Veraltete Dateizugriffsnummer (file handle): '/nfs/a'", "StorageIoError"),
        ("OSError: [Errno 24] 打开的文件过多: '/data/a'", "TooManyOpenFiles"),
        ("Error: Die Adresse wird bereits verwendet (os error 98)", "AddressInUse"),
    ],
)
def test_an_error_of_another_locale_has_the_class_of_its_number(line: str, phrase: str) -> None:
    text = f'Traceback (most recent call last):\n  File "/app/a.py", line 3, in <module>\n    f()\n{line}\n'
    log = LogExcerpt(source="job.log", text=text)
    report = explain(AttemptEvidence(workers=(WorkerEvidence(log=log),)))
    assert report.phrase == phrase
    assert report.because.line is not None
    assert report.because.line.text == line  # quoted as the program wrote it


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: '/scratch/a.pt'",
        "OSError: [Errno 28] inotify watch limit reached",
        "ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.0.1', 29500)",
        "OSError: [Errno 4711] Auf dem Mond ist kein Speicherplatz",
        "step 28 loss 2.5",
        "socket.gaierror: [Errno -2] Name or service not known",
    ],
)
def test_other_words_stay(line: str) -> None:
    assert in_english(line) == line


def test_the_errors_of_the_benchmark_that_have_a_number_are_in_the_table() -> None:
    assert {errno.ENOSPC, errno.ESTALE, errno.EDQUOT, errno.ECONNRESET} <= set(WORDS)

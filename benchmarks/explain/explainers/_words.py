"""What the simple explainers share: reading a case, the classes, and what the name of an exception usually means."""

from __future__ import annotations

import csv
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

_NAMES = "Error|Exception|Interrupt|Iteration|Exit|Drift|Killed|ZipFile"
RAISED = re.compile(rf"^(?:\[rank\d+\]:? ?)?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:{_NAMES}))(?:: .*)?$", re.M)
#: By the last part of an exception's name; any other one is the user's.
CLASS_OF = {
    "ModuleNotFoundError": "ModuleNotFound",
    "ImportError": "ImportFailed",
    "SyntaxError": "SyntaxError",
    "IndentationError": "SyntaxError",
    "MemoryError": "HostAllocationFailed",
    "OutOfMemoryError": "AcceleratorOutOfMemory",
    "FileNotFoundError": "DataNotFound",
    "PermissionError": "PermissionDenied",
    "ConnectionRefusedError": "NetworkUnreachable",
    "ConnectionResetError": "NetworkLost",
    "ConnectionError": "NetworkLost",
    "BrokenPipeError": "NetworkLost",
    "TimeoutError": "NetworkLost",
    "gaierror": "DnsFailed",
    "SSLError": "TlsVerifyFailed",
    "SSLCertVerificationError": "TlsVerifyFailed",
    "HTTPError": "DownloadFailed",
    "URLError": "NetworkUnreachable",
    "IncompleteRead": "DownloadFailed",
    "JSONDecodeError": "DataCorrupt",
    "UnicodeDecodeError": "DataCorrupt",
    "BadZipFile": "DataCorrupt",
    "EOFError": "DataCorrupt",
    "PicklingError": "PicklingFailed",
    "FloatingPointError": "NanLoss",
    "YAMLError": "ConfigInvalid",
    "DistNetworkError": "RendezvousFailed",
    "DistStoreError": "RendezvousTimeout",
}


def case() -> dict[str, Any]:
    found: dict[str, Any] = json.load(sys.stdin)
    return found


@cache
def classes() -> dict[str, tuple[str, str]]:
    """Phrase → blame and what is usually done."""
    with Path(__file__).parent.with_name("classes.csv").open() as file:
        return {row["phrase"]: (row["blame"], row["rerun"]) for row in csv.DictReader(file)}


def phrase_of(name: str) -> str:
    return CLASS_OF.get(name.rpartition(".")[2], "UserException")


def exceptions(text: str) -> list[str]:
    """Names of the exceptions that a log ends tracebacks with, in order."""
    return [found[1] for found in RAISED.finditer(text)]


def answer(phrase: str, culprits: list[int]) -> None:
    """Print the answer of an explainer that knows nothing but the class."""
    blame, rerun = classes()[phrase]
    retry = {"never": "no"}.get(rerun, rerun)
    print(json.dumps({"phrase": phrase, "blame": blame, "culprits": culprits, "retry": retry}))

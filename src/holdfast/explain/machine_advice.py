"""Adds facts about the machine to the advice, if holdfast ran the job: the Python, the port's holder, the disks."""

from __future__ import annotations

from holdfast.model.evidence import HostFacts
from holdfast.model.phrases import Phrase


def advice(phrase: str, known: HostFacts | None) -> tuple[str, str]:
    """Return an addition to the reason, and a replacement for the catalogue's solution; each may be empty."""
    if known is None:
        return "", ""
    if phrase == Phrase.MODULE_NOT_FOUND and known.python:
        return f"workers run with {known.python}", _module(known)
    if phrase == Phrase.ADDRESS_IN_USE:
        return _port(known)
    if phrase in (Phrase.DISK_FULL, Phrase.QUOTA_EXCEEDED) and known.disks:
        return "; ".join(known.disks), ""
    if phrase == Phrase.SHARED_MEMORY_EXHAUSTED and known.shared_memory:
        return "; ".join(known.shared_memory), ""
    return "", ""


def _module(known: HostFacts) -> str:
    name = known.module or "it"
    if known.found_in:
        other = known.found_in[0]
        if known.by_command:
            return f"{other} has {name}: have the command begin with it, or install it for {known.python}."
        return f"{other} has {name}: run with `holdfast run --python {other} …`, or install it for {known.python}."
    install = f"`{known.python} -m pip install {known.module.partition('.')[0] or 'MODULE'}`"
    other = "name another one in the command" if known.by_command else "run with another one (`--python PATH`)"
    return (
        f"Install {name} for the Python that runs the workers ({install}; a package may have another name), "
        f"{other}, or add the module's directory to PYTHONPATH."
    )


def _port(known: HostFacts) -> tuple[str, str]:
    which = f"port {known.port}" if known.port is not None else "the port"
    held = f"{which} is held by {known.holder}" if known.holder else ""
    if known.port is not None and known.port == known.asked_port:
        return held, "Give another --master-port, or none: holdfast takes a free one in each attempt."
    return held, (
        "Have the program take a free port (port 0), or the job's own, os.environ['MASTER_PORT'], which is new in each "
        f"attempt: no option of holdfast changes {which}, which the program chose. `ss -ltnp` lists who listens."
    )

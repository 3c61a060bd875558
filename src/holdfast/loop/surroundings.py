"""What the machine knows of a module or port that a failed attempt's workers missed, read when the attempt is over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.loop.interpreter import environments, has_module, same_place
from holdfast.model.evidence import AttemptEvidence, Surroundings

_MODULE = re.compile(r"No module named [\"']?([A-Za-z_]\w*)")
_IN_USE = re.compile(r"[Aa]ddress already in use|EADDRINUSE|[Pp]ort \d+ (?:is )?already|Errno 98")
_PORT = re.compile(r"[Pp]ort:? ?(\d{1,5})\b|\]?:(\d{2,5})\b|\('[^']*', (\d{1,5})\)")


def look_around(
    evidence: AttemptEvidence, command: Sequence[str], chosen: str, asked_port: int | None, env: Mapping[str, str]
) -> Surroundings | None:
    """`command`: the workers'. `chosen`: the Python that holdfast puts into one. None: nothing of this was missed."""
    module, port, in_use = "", None, False
    for worker in evidence.workers:
        text = worker.stderr.text if worker.stderr is not None else ""
        for line in text.splitlines():
            if found := _MODULE.search(line):
                module = found[1]
            elif _IN_USE.search(line):
                in_use = True
                if number := _PORT.search(line):
                    port = int(number[1] or number[2] or number[3])
    if not module and not in_use:
        return None
    python = command[0]
    if python != chosen:
        import shutil  # brings three compressors

        is_python = Path(python).name.startswith("python")
        python = (shutil.which(python, path=env.get("PATH")) or "") if is_python else ""
    others = [prefix / "bin" / "python" for prefix in environments(env) if module and has_module(prefix, module)]
    return Surroundings(
        python=python,
        by_command=command[0] != chosen,
        module=module,
        found_in=tuple(str(other) for other in others if not (python and same_place(str(other), python))),
        port=port,
        asked_port=asked_port,
        holder=_holder(port),
    )


def _holder(port: int | None) -> str:
    if port is None or not Path("/proc/net/tcp").exists():
        return ""
    from holdfast.observe.checks.ports import holder

    return holder(port).strip().removeprefix("by ")

"""Runs on four devices whose faults are reported, and the programs of their workers."""

from __future__ import annotations

from pathlib import Path

from conftest import Holdfast, wait_for

UP = """
import os, pathlib, sys, time
import holdfast
attempt, rank = os.environ["HOLDFAST_ATTEMPT"], os.environ["RANK"]
def up():
    mark = pathlib.Path(f"up-{attempt}-{rank}")
    mark.with_suffix(".new").write_text(os.environ["CUDA_VISIBLE_DEVICES"] + " " + str(os.getpid()))
    mark.with_suffix(".new").rename(mark)
"""
POLLS = (
    UP
    + """
holdfast.draining()
up()
while attempt == "1":
    time.sleep(0.05)
    if notice := holdfast.draining():
        pathlib.Path(f"saved-{rank}").write_text(notice["reason"])
        sys.exit(0)
"""
)
#: Each attempt stays until it is stopped.
STAYS = UP + "up()\nwhile not pathlib.Path(f'end-{attempt}').exists(): time.sleep(0.05)\n"
RESET = """#!/bin/sh
# Says what it resets, and which workers of the first attempt still live.
alive=""
for mark in up-1-*; do kill -0 $(cut -d' ' -f2 $mark) 2>/dev/null && alive="$alive $mark"; done
echo "$1 $2 [$alive]" >> resets
sleep 0.3
[ -e stuck ] && { echo "the device does not answer"; exit 3; }
exit 0
"""


class Live:
    """One job on four devices, with two workers, that is up, and whose devices `./reset` resets."""

    def __init__(
        self, holdfast: Holdfast, script: str, *options: str | Path, save_s: int = 90, heal_s: int = 1, **env: str
    ) -> None:
        self.holdfast = holdfast
        (holdfast.dir / "rules.yaml").write_text(f"grace: {{save_s: {save_s}, heal_s: {heal_s}}}\n")
        reset = holdfast.dir / "reset"
        reset.write_text(RESET)
        reset.chmod(0o700)
        self.env = {
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
            "HOLDFAST_FAULT_RULES": "rules.yaml",
            "HOLDFAST_RESET_COMMAND": "./reset {device} {index}",
            **env,
        }
        job = options if "--job" in options else ("--nproc-per-node", "2", *options, holdfast.script(script))
        self.process = holdfast.start("run", "--no-checks", "--grace", "2", *job, **self.env)
        for rank in range(2):
            wait_for(holdfast.dir / f"up-1-{rank}")

    def fault(self, code: str, *options: str) -> None:
        told = self.holdfast.start(
            "faults", "report", "--device", "gpu0", "--code", code, "--yes", *options, **self.env
        )
        ran = self.holdfast.finish(told)
        assert ran.status == 0, ran.err

    def visible(self, attempt: int) -> str:
        return (self.holdfast.dir / f"up-{attempt}-0").read_text().split()[0]

    def resets(self) -> list[str]:
        return (self.holdfast.dir / "resets").read_text().splitlines()

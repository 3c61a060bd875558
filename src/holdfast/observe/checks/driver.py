"""Checks whether the accelerator's driver and the runtime match."""

from __future__ import annotations

import glob
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from holdfast.model.check_interface import Verdict
from holdfast.observe.checks.check_base import BuiltIn, Context, Params, good
from holdfast.observe.checks.nvml_queries import Nvml, NvmlError
from holdfast.safe_files import small_text

_TOOL_S = 8.0


class DriverParams(Params, frozen=True, kw_only=True):
    min_driver: Annotated[str, Meta(description="the oldest driver that will do, as in 535.54")] = ""
    devices: Annotated[int, Meta(ge=0, description="how many accelerators there must be")] = 0
    runtime: Annotated[str, Meta(description="the CUDA that the program is built for, as in 12.4; none: torch's")] = ""


class Driver(BuiltIn):
    name = "driver"
    question = "Is the accelerator's driver loaded, does it answer, and is it new enough for the runtime?"
    cost = "1 ms without accelerators; what the driver takes to answer with them"
    blame = "platform"
    Params = DriverParams
    time_limit_s = 10.0

    def look(self, context: Context) -> Verdict:
        params: DriverParams = self.params
        problems: list[str] = []
        seen: list[str] = []
        count = 0
        for look in (self._nvidia, self._ascend, self._rocm):
            found, more, words = look()
            problems += words
            seen += more
            count += found
        if count < params.devices:
            problems.append(f"{count} accelerators answer, {params.devices} asked")
        if problems:
            return self.bad(
                context,
                problems,
                "Update the driver or take an image built for it; after a driver update the node needs a reboot.",
                figures={"devices": count},
            )
        return good("; ".join(seen) or "no accelerators here", {"devices": count})

    def _nvidia(self) -> tuple[int, list[str], list[str]]:
        loaded = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", small_text("/proc/driver/nvidia/version"))
        if loaded is None and not glob.glob("/dev/nvidia[0-9]*"):  # noqa: PTH207 - absolute
            return 0, [], []
        try:
            library = Nvml()
        except OSError:
            return 0, [], ["an NVIDIA driver is loaded, but its library libnvidia-ml.so.1 is not in this container"]
        except NvmlError as error:
            kernel = f"; the kernel has {loaded[1]}" if loaded and error.mismatch else ""
            return 0, [], [f"the NVIDIA driver does not answer: {error}{kernel}"]
        problems: list[str] = []
        try:
            version, cuda, count = library.driver(), library.cuda(), library.count()
            for index in range(count):
                try:
                    library.handle(index)
                except NvmlError as error:
                    problems.append(f"gpu{index} does not answer: {error}")
            files = len(glob.glob("/dev/nvidia[0-9]*"))  # noqa: PTH207 - absolute
            if count < files:
                problems.append(f"{count} of {files} NVIDIA devices answer")
        except NvmlError as error:
            return 0, [], [f"the NVIDIA driver does not answer: {error}"]
        finally:
            library.close()
        if self.params.min_driver and numbers(version) < numbers(self.params.min_driver):
            problems.append(f"the NVIDIA driver is {version}, {self.params.min_driver} asked")
        built = self.params.runtime or torch_runtime("cuda")
        # Compare major versions only, because an older driver also runs programs for a newer CUDA of the same major
        # version.
        if built and numbers(built)[:1] > (cuda[0],):
            problems.append(
                f"the NVIDIA driver {version} serves CUDA up to {cuda[0]}.{cuda[1]}, the program is built for {built}"
            )
        return count, [f"{count} NVIDIA devices, driver {version}, CUDA up to {cuda[0]}.{cuda[1]}"], problems

    def _ascend(self) -> tuple[int, list[str], list[str]]:
        files = glob.glob("/dev/davinci[0-9]*")  # noqa: PTH207 - absolute
        if not files:
            return 0, [], []
        said = run_tool(["npu-smi", "info"])
        if said == "":
            return len(files), [f"{len(files)} Ascend devices (npu-smi is not here to ask them)"], []
        if said is None:
            return 0, [], [f"npu-smi did not answer within {_TOOL_S:g} s, or failed"]
        version = re.search(r"Version:\s*(\S+)", said)
        problems = []
        if self.params.min_driver and version and numbers(version[1]) < numbers(self.params.min_driver):
            problems.append(f"the Ascend driver is {version[1]}, {self.params.min_driver} asked")
        return len(files), [f"{len(files)} Ascend devices, npu-smi {version[1] if version else '?'}"], problems

    def _rocm(self) -> tuple[int, list[str], list[str]]:
        if not Path("/dev/kfd").exists():
            return 0, [], []
        nodes = Path("/sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
        count = sum(1 for node in nodes if small_text(node) not in ("", "0"))
        version = small_text("/sys/module/amdgpu/version")
        problems = []
        if self.params.min_driver and version and numbers(version) < numbers(self.params.min_driver):
            problems.append(f"the AMD driver is {version}, {self.params.min_driver} asked")
        return count, [f"{count} AMD devices, driver {version or 'of the kernel'}"], problems


def numbers(version: str) -> tuple[int, ...]:
    """Convert `535.129.03` to (535, 129, 3), for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def torch_runtime(kind: str) -> str:
    """Return the version of `kind` (cuda or hip) that the installed torch was built for, from torch's version file
    without an import of torch.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    match = re.search(
        rf"^{kind}\b[^=]*=\s*'([^']+)'", small_text(Path(spec.origin).with_name("version.py")), re.MULTILINE
    )
    return match[1] if match else ""


def run_tool(command: list[str]) -> str | None:
    """Run a vendor's tool and return its output; "" if the tool is not installed, None if it fails or takes too
    long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TOOL_S, check=False)
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

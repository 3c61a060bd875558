"""The calls to NVIDIA's management library, against a small library with its interface."""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.observe.checks.driver import Driver, torch_runtime
from holdfast.observe.checks.nvml_queries import Nvml, NvmlError
from holdfast.observe.checks.standing import gpu_memory
from holdfast.observe.devices import nvidia_library

LIBRARY = """
#include <string.h>
typedef struct device *handle;
static int up;
#ifndef BROKEN
#define BROKEN 0
#endif
int nvmlInit_v2(void) { if (BROKEN) return BROKEN; up = 1; return 0; }
int nvmlShutdown(void) { up = 0; return 0; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "GPU is lost"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    if (!up) return 1;
    strncpy(text, "535.129.03", size);
    return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12020; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out) {
    if (index == 2) return 15;
    *out = (handle)(0x7f0000000000UL + index);
    return 0;
}
int nvmlDeviceGetTotalEccErrors(handle device, int kind, int counter, unsigned long long *count) {
    if (kind != 1 || counter != 0) return 2;
    *count = (unsigned long)device == 0x7f0000000001UL ? 5000000000ULL : 0;
    return 0;
}
int nvmlDeviceGetRemappedRows(handle device, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
    *c = *u = 1;
    *pending = (unsigned long)device == 0x7f0000000000UL;
    *failed = 0;
    return 0;
}
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, built = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(LIBRARY)
    subprocess.run([compiler, f"-DBROKEN={request.param}", "-shared", "-fPIC", "-o", built, source], check=True)
    monkeypatch.setattr(nvidia_library, "NAME", str(built))


@pytest.mark.parametrize("library", [0], indirect=True)
def test_what_the_library_answers(library: None) -> None:
    found = Nvml()
    assert (found.driver(), found.cuda(), found.count()) == ("535.129.03", (12, 2), 3)
    assert (found.uncorrected(found.handle(0)), found.uncorrected(found.handle(1))) == (0, 5_000_000_000)
    assert (found.remapping(found.handle(0)), found.remapping(found.handle(1))) == ((True, False), (False, False))
    with pytest.raises(NvmlError, match="GPU is lost"):
        found.handle(2)
    found.close()
    with pytest.raises(NvmlError):
        found.driver()


@pytest.mark.parametrize("library", [18], indirect=True)
def test_a_driver_that_does_not_fit_its_library(library: None) -> None:
    with pytest.raises(NvmlError, match="version mismatch") as caught:
        Nvml()
    assert caught.value.mismatch


def test_a_library_that_is_not_there() -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        with pytest.raises(OSError, match="libnvidia-ml"):
            Nvml()
    else:
        pytest.skip("this machine has NVIDIA's library")


def _device_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the checks see device files of four GPUs."""
    from holdfast.observe.checks import standing

    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    names = [str(path) for path in sorted(tmp_path.glob("nvidia[0-9]"))]
    monkeypatch.setattr(glob, "glob", lambda pattern: names if "nvidia" in pattern else [])
    monkeypatch.setattr(standing, "_CONTROL", tmp_path / "nvidiactl")


@pytest.mark.parametrize("library", [0], indirect=True)
def test_the_checks_tell_what_is_wrong(library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _device_files(monkeypatch, tmp_path)
    message = Driver().check(min_driver="550.54", runtime="13.0").result_msg
    assert "gpu2 does not answer: GPU is lost" in message
    assert "3 of 4 NVIDIA devices answer" in message
    assert "the NVIDIA driver is 535.129.03, 550.54 asked" in message
    assert "serves CUDA up to 12.2, the program is built for 13.0" in message
    assert gpu_memory() == [
        ("gpu0", "gpu0 has bad memory rows that wait for a reset to be remapped"),
        ("gpu1", "gpu1 has 5000000000 uncorrectable memory errors since the driver was loaded"),
        ("gpu2", "gpu2 does not answer: GPU is lost"),
    ]


@pytest.mark.parametrize("library", [18], indirect=True)
def test_a_mismatch_is_told_in_the_library_s_words(
    library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _device_files(monkeypatch, tmp_path)
    assert "the NVIDIA driver does not answer: Driver/library version mismatch" in Driver().check().result_msg


@pytest.mark.torch
def test_the_runtime_of_torch_is_read_and_not_imported() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    told = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    assert torch_runtime("cuda") == (told["cuda"] or "")
    assert torch_runtime("no_such_thing") == ""

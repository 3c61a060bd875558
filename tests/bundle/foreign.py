"""What images bring that is made for another C library, and what a container engine refuses: made with a compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

from roots import compiled

_FUTURE = "GLIBC_9.9 { global: holdfast_in_the_future; };\n"
_WANTS = """
extern int holdfast_in_the_future(void);
int (*holdfast_wanted)(void) = holdfast_in_the_future;
"""
_SEEN = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void seen(void) {
  int file = open("/dev/shm/seen", O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (file < 0) return;
  if (write(file, program_invocation_short_name, strlen(program_invocation_short_name)) > 0 && write(file, "\n", 1) < 0)
    return;
  close(file);
}
"""
_NO_CLONE3 = r"""
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
  if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 98;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 99;
  execvp(words[1], words + 1);
  return 97;
}
"""
_NVML = "int nvmlInit_v2(void) { return 0; }\n"


def of_a_newer_libc(to: Path) -> Path:
    """A library that no C library of today can load: it wants glibc 9.9."""
    (to.parent / "future.map").write_text(_FUTURE)
    stub = to.parent / "libc.so.6"
    words = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={to.parent}/future.map"]
    compiled("int holdfast_in_the_future(void) { return 0; }\n", stub, "gcc", *words)
    made = compiled(_WANTS, to, "gcc", "-shared", "-fPIC", "-nostdlib", more=["-x", "none", stub])
    stub.unlink()
    return made


def that_is_seen(to: Path) -> Path:
    """A library that writes down into which programs it was loaded: `/dev/shm/seen`."""
    return compiled(_SEEN, to, "gcc", "-shared", "-fPIC")


def nvml(to: Path) -> Path:
    """A library with the name of NVIDIA's, and one function."""
    return compiled(_NVML, to, "gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libnvidia-ml.so.1")


def refuses_clone3(to: Path) -> Path:
    """`refuses_clone3 COMMAND`: the call is forbidden to it, as by the filters of older container engines."""
    return compiled(_NO_CLONE3, to, "gcc", "-static")


def fails_to_load(library: Path) -> bool:
    """Whether it kills a program of this machine that is to load it."""
    done = subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(library)}, capture_output=True, check=False)
    return done.returncode != 0 and b"GLIBC_9.9" in done.stderr

"""Translates command lines of other launchers: their options into options of holdfast, and commands that start them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.lazy_pattern import Lazy


class OtherOption(msgspec.Struct, frozen=True):
    """An option of another launcher. `owner`: that launcher's name. `flag`: whether the option takes no value."""

    owner: str
    #: The option of holdfast with the same meaning; empty if holdfast needs none.
    ours: str = ""
    flag: bool = False
    #: The advice for the user if holdfast has no such option.
    instead: str = ""


#: Program names of launchers. Each of these launchers starts a job of its own.
LAUNCHERS = frozenset({
    "torchrun", "accelerate", "deepspeed", "horovodrun", "colossalai", "holdfast",
    "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "srun",
})  # fmt: skip
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
}
_A, _D, _M, _S = "accelerate", "deepspeed", "mpirun", "srun"
_TRAINING = "the script sets it, or --accelerate-config FILE"
OPTIONS: dict[str, OtherOption] = {
    "--use-env": OtherOption("torch.distributed.launch", flag=True, instead="workers always have LOCAL_RANK"),
    "--num-processes": OtherOption(_A, "--nproc-per-node"),
    "--num-machines": OtherOption(_A, "--nnodes"),
    "--machine-rank": OtherOption(_A, "--node-rank"),
    "--main-process-ip": OtherOption(_A, "--master-addr"),
    "--main-process-port": OtherOption(_A, "--master-port"),
    "--config-file": OtherOption(_A, "--accelerate-config"),
    "--multi-gpu": OtherOption(_A, flag=True, instead="--nproc-per-node says how many workers"),
    "--same-network": OtherOption(_A, flag=True, instead="no option is needed"),
    "--mixed-precision": OtherOption(_A, instead="ACCELERATE_MIXED_PRECISION in the environment"),
    "--gpu-ids": OtherOption(_A, instead="CUDA_VISIBLE_DEVICES in the environment"),
    "--num-cpu-threads-per-process": OtherOption(_A, instead="OMP_NUM_THREADS in the environment"),
    "--dynamo-backend": OtherOption(_A, instead="ACCELERATE_DYNAMO_BACKEND in the environment"),
    "--use-deepspeed": OtherOption(_A, flag=True, instead=_TRAINING),
    "--use-fsdp": OtherOption(_A, flag=True, instead=_TRAINING),
    "--deepspeed-config-file": OtherOption(_A, instead=_TRAINING),
    "--zero-stage": OtherOption(_A, instead=_TRAINING),
    "--gradient-accumulation-steps": OtherOption(_A, instead=_TRAINING),
    "--num-gpus": OtherOption(_D, "--nproc-per-node"),
    "--num-accelerators": OtherOption(_D, "--nproc-per-node"),
    "--num-nodes": OtherOption(_D, "--nnodes"),
    "--include": OtherOption(_D, instead="--hosts A,B chooses machines, CUDA_VISIBLE_DEVICES=0,1 devices"),
    "--exclude": OtherOption(_D, instead="--hosts A,B chooses machines, CUDA_VISIBLE_DEVICES=0,1 devices"),
    "--launcher": OtherOption(_D, instead="--hostfile starts the nodes over ssh"),
    "--launcher-args": OtherOption(_D, instead="--ssh 'ssh OPTIONS'"),
    "--ssh-port": OtherOption(_D, instead="--ssh 'ssh -p PORT'"),
    "--no-local-rank": OtherOption(_D, flag=True, instead="workers get no --local_rank"),
    "--no-ssh": OtherOption(_D, flag=True, instead="type the command on every node with --nnodes and --rdzv-endpoint"),
    "--force-multi": OtherOption(_D, flag=True, instead="no option is needed"),
    "--enable-each-rank-log": OtherOption(_D, "--log-dir"),
    "-np": OtherOption(_M, "--nproc-per-node"),
    "--np": OtherOption(_M, "--nproc-per-node"),
    "-n": OtherOption(_M, "--nproc-per-node"),
    "-npernode": OtherOption(_M, "--nproc-per-node"),
    "--npernode": OtherOption(_M, "--nproc-per-node"),
    "-ppn": OtherOption(_M, "--nproc-per-node"),
    "-H": OtherOption(_M, "--hosts"),
    "--host": OtherOption(_M, "--hosts"),
    "-host": OtherOption(_M, "--hosts"),
    "-hostfile": OtherOption(_M, "--hostfile"),
    "-machinefile": OtherOption(_M, "--hostfile"),
    "--machinefile": OtherOption(_M, "--hostfile"),
    "-x": OtherOption(_M, instead="workers have holdfast's environment"),
    "-genv": OtherOption(_M, instead="workers have holdfast's environment"),
    "--bind-to": OtherOption(_M, instead="no option is needed"),
    "--map-by": OtherOption(_M, instead="no option is needed"),
    "--mca": OtherOption(_M, instead="no option is needed"),
    "--allow-run-as-root": OtherOption(_M, flag=True, instead="no option is needed"),
    "--oversubscribe": OtherOption(_M, flag=True, instead="no option is needed"),
    "--ntasks": OtherOption(_S, "--nproc-per-node"),
    "--ntasks-per-node": OtherOption(_S, "--nproc-per-node"),
    "--nodes": OtherOption(_S, "--nnodes"),
    "-N": OtherOption(_S, "--nnodes"),
    "--gpus": OtherOption(_S, "--nproc-per-node"),
    "-G": OtherOption(_S, "--nproc-per-node"),
    "--gpus-per-node": OtherOption(_S, "--nproc-per-node"),
    "--gres": OtherOption(_S, instead="the allocation has it: sbatch --gres=…"),
    "--cpus-per-task": OtherOption(_S, instead="the allocation has it: sbatch --cpus-per-task=…"),
    "--partition": OtherOption(_S, instead="the allocation has it: sbatch --partition=…"),
    "--kill-on-bad-exit": OtherOption(_S, instead="no option is needed: a failed worker ends the attempt"),
}
#: torchrun's options that take no value.
FLAGS = frozenset({"--standalone", "--no-python", "-m", "--module", "--run-path", "--virtual-local-rank"})
#: Options by which several launchers, one on each machine, form one job.
_OVER_MACHINES = ("--nnodes", "--num-machines", "--num-nodes", "--hostfile", "-H", "--config-file", "--master-addr")
PYTHON = Lazy(r"(?:python|pypy)[0-9.]*")


class OtherCommand(msgspec.Struct, frozen=True):
    """A command that starts another launcher or Python."""

    launcher: str
    #: The words that replace the command after `holdfast run`.
    words: tuple[str, ...]
    #: Whether several such commands, started on several machines, form one job.
    joins: bool


def option_named(word: str) -> OtherOption | None:
    """Return the other launcher's option that a word such as `--num_processes=4` names.

    Return None if there is none.
    """
    return OPTIONS.get(option_name(word))


def translated(words: Sequence[str], values: Mapping[str, bool] | None = None) -> tuple[str, ...]:
    """Return the words with other launchers' options replaced by options of holdfast, up to the script.

    `values`: whether each option of holdfast takes a value. If None, torchrun's options are assumed.
    """
    options, rest = _translated(words, values)
    return (*options, *rest)


def _translated(words: Sequence[str], values: Mapping[str, bool] | None = None) -> tuple[list[str], tuple[str, ...]]:
    """Return holdfast's options, and the unchanged words from the script on."""
    ours: dict[str, str] = {}
    flags: list[str] = []
    rest = list(words)[::-1]
    while rest and rest[-1].startswith("-") and rest[-1] != "--":
        word = rest.pop()
        name, other = option_name(word), option_named(word)
        if values is not None and name in values:
            other, flag = None, not values[name]
        else:
            flag = other.flag if other else name in FLAGS
        text = word.partition("=")[2] if "=" in word else None
        if text is None and not flag and len(rest) > 1:
            text = rest.pop()
            if name in ("--mca", "-mca", "-genv") and len(rest) > 1:
                rest.pop()
        if other is not None:
            if other.ours:
                ours[other.ours] = text or ""
        elif text is None:
            flags.append(word)
        else:
            ours[name] = text
    nodes, workers = ours.get("--nnodes", ""), ours.get("--nproc-per-node", "")
    if "--num-processes" in map(option_name, words) and nodes.isdigit() and workers.isdigit() and int(nodes) > 1:
        # Accelerate counts the workers of all machines together.
        ours["--nproc-per-node"] = str(int(workers) // int(nodes))
    if nodes == "1":
        del ours["--nnodes"]
    return [*(word for pair in ours.items() for word in pair), *flags], tuple(rest[::-1])


def option_name(word: str) -> str:
    name = word.partition("=")[0]
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


def other_command(words: Sequence[str]) -> OtherCommand | None:
    """Return the translation of a command that begins with a launcher or with Python.

    Return None for any other command.
    """
    if not words:
        return None
    program, rest = words[0].rpartition("/")[2], tuple(words[1:])
    if PYTHON.fullmatch(program):
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
            rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
        if rest[:1] == ("-m",) and rest[1:2] and rest[1] in MODULES:
            return other_command((MODULES[rest[1]], *rest[2:]))
        return None if rest[:1] in ((), ("-c",)) else OtherCommand("", rest, joins=True)
    if program not in LAUNCHERS:
        return None
    if program in ("accelerate", "holdfast"):
        if rest[:1] not in (("launch",), ("run",)):
            return None
        rest = rest[1:]
    if program == "colossalai":
        rest = rest[1:]
    joins = any(_joins(words, i) for i in range(1, len(words)))
    options, behind = _translated(rest)
    if (inner := other_command(behind)) is not None:  # a command within a command, as in `mpirun -np 4 python train.py`
        behind = inner.words
        if "--nproc-per-node" in behind and "--nproc-per-node" in options:
            # The inner command's number counts: `srun --ntasks-per-node 1 torchrun --nproc-per-node 8 train.py`.
            at = options.index("--nproc-per-node")
            del options[at : at + 2]
    return OtherCommand(f"{program} launch" if program == "accelerate" else program, (*options, *behind), joins)


def _joins(words: Sequence[str], i: int) -> bool:
    name, _, text = words[i].partition("=")
    if option_name(name) not in _OVER_MACHINES:
        return False
    value = text or (words[i + 1] if i + 1 < len(words) else "")
    return value not in ("1", "1:1", "localhost", "127.0.0.1")


def line(words: Sequence[str], typed: Sequence[str]) -> str:
    """Return the `holdfast run` command line for `words`. `typed`: the options that the user typed before them."""
    names = {option_name(word) for word in typed if word.startswith("-")}
    kept: list[str] = []
    rest = list(words)[::-1]
    while rest and rest[-1].startswith("-") and rest[-1] != "--":
        pair = [rest.pop()]
        if option_name(pair[0]) not in FLAGS and "=" not in pair[0] and rest:
            pair.append(rest.pop())
        kept += [] if option_name(pair[0]) in names else pair
    if (inner := other_command(rest[::-1])) is not None:
        rest = [*inner.words[::-1]]
    return shlex.join(("holdfast", "run", *typed, *kept, *rest[::-1]))


def typed_options(words: Sequence[str]) -> list[str]:
    """Return the options of `holdfast run` that were typed before these words."""
    args = sys.argv[1:]
    if args[:1] != ["run"] or (words and args[-len(words) :] != list(words)):
        return []
    return [word for word in args[1 : len(args) - len(words)] if word != "--no-python"]

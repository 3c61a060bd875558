"""Explain why sbatch refused a job: its message, the key at fault, and a command to try."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.slurm.slurm_commands import CommandOutput, CommandTrouble
from holdfast.platforms.slurm.text.slurm_options import nearest


class SbatchRefusal(Noun, frozen=True, kw_only=True):
    """The explanation of one refusal. `key`: the key of the `slurm:` section at fault, if known."""

    #: sbatch's message, in one line.
    said: str
    key: str = ""
    advice: str = ""
    hint: str = ""
    #: Whether this machine or slurmctld caused the failure, and not the job.
    ours: bool = False


_SHOW_NODES = "sinfo -o '%P %D nodes, %c cores, %m MB, %G, limit %l, features %f'"
_ROWS: tuple[tuple[str, str, str, str], ...] = (
    (r"invalid partition", "partition", "there is no such partition, or it is closed to you", "sinfo -o '%P %a %l %D'"),
    (
        r"invalid account",
        "account",
        "you may not use this account, or not in this partition",
        "sacctmgr -n show assoc user=$USER format=account,partition,qos",
    ),
    (
        r"invalid qos",
        "qos",
        "you may not use this quality of service",
        "sacctmgr -n show assoc user=$USER format=account,qos",
    ),
    (
        r"--time specification|time limit is invalid",
        "time",
        "the partition allows less, or it is no time",
        "sinfo -o '%P %l'",
    ),
    (
        r"node count specification invalid|more nodes",
        "nodes",
        "the partition has fewer nodes, or allows fewer",
        _SHOW_NODES,
    ),
    (
        r"generic resource|\(gres\)|trackable resource|\(tres\)|gpus",
        "gpus",
        "no node has such GPUs, or so many of them",
        "sinfo -o '%N %G'",
    ),
    (r"memory", "memory", "no node has so much memory", "sinfo -o '%N %m MB'"),
    (r"invalid feature|--constraint", "constraint", "no node has this feature", "sinfo -o '%N %f'"),
    (r"reservation", "reservation", "there is no such reservation, or it is not yours", "scontrol show reservation"),
    (r"array", "array", "expected indices below MaxArraySize", "scontrol show config | grep -i MaxArray"),
    (r"--signal specification", "signal", "expected SIGNAL@SECONDS", "man sbatch"),
    (r"invalid node name", "exclude", "there is no such node", "sinfo -N"),
    (
        r"accounting/qos policy|job submit limit|limit",
        "",
        "a limit of your account or quality of service is reached",
        "sacctmgr show assoc user=$USER; sacctmgr show qos",
    ),
    (
        r"node configuration is not available|processors requested",
        "",
        "no node of the partition has all that is asked for",
        _SHOW_NODES,
    ),
    (r"pathname|too long", "", "a text is too long for Slurm", "holdfast submit --dry-run …"),
    (r"dependency", "dependency", "there is no such job, or it is no dependency", "squeue --me"),
    (r"permission|access", "", "Slurm does not let this user do that", "id; sacctmgr show user $USER"),
)
_OPTION = re.compile(r"option '--([a-z][a-z0-9-]*)|invalid --([a-z][a-z0-9-]*) specification", re.IGNORECASE)
_OURS = {
    CommandTrouble.MISSING: "sbatch is not on this machine: expected a login node of the cluster",
    CommandTrouble.MUNGE: "munge does not work on this machine, so slurmctld cannot know who asks",
    CommandTrouble.AWAY: "slurmctld does not answer",
    CommandTrouble.SLOW: "slurmctld did not answer in time; the job may be in the queue all the same",
}
_HINTS = {
    CommandTrouble.MISSING: "holdfast submit --dry-run …, and submit what it prints with sbatch on the login node",
    CommandTrouble.MUNGE: "munge -n | unmunge; systemctl status munge",
    CommandTrouble.AWAY: "scontrol ping, and submit again when it is up",
    CommandTrouble.SLOW: "squeue --me, before you submit it again",
}


def sbatch_refusal(answer: CommandOutput, keys: Mapping[str, str]) -> SbatchRefusal:
    """Explain why sbatch refused a job, from its output without a job id.

    `keys`: maps each key of the `slurm:` section to the option or file that has set it.
    """
    if answer.trouble in _OURS:
        said = _words(answer.err)
        return SbatchRefusal(said=said, advice=_OURS[answer.trouble], hint=_HINTS[answer.trouble], ours=True)
    said = _words(answer.err) or answer.said or f"status {answer.status}"
    if re.search(r"configuration source|fetch config|configuration file|clustername needs", said.lower()):
        return SbatchRefusal(
            said=said,
            advice="this machine has no configuration of Slurm: expected a login node of the cluster",
            hint="ls -l /etc/slurm/slurm.conf; echo $SLURM_CONF",
            ours=True,
        )
    if found := _OPTION.search(answer.err):
        option = next(group for group in found.groups() if group)
        if "unrecognized" in answer.err or "ambiguous" in answer.err:
            meant = nearest(option)
            near = f"; did you mean `{meant}`?" if meant else ""
            return SbatchRefusal(
                said=said, key=option, advice=f"sbatch has no option --{option}{near}", hint="sbatch --help"
            )
    lower = said.lower()
    for pattern, key, advice, hint in _ROWS:
        if re.search(pattern, lower):
            return SbatchRefusal(said=said, key=_stated(key, keys), advice=advice, hint=hint)
    option = next((group for group in found.groups() if group), "") if found else ""
    return SbatchRefusal(said=said, key=option, advice="", hint="man sbatch")


def _stated(key: str, keys: Mapping[str, str]) -> str:
    """Return the key at fault: `key`, or `nodelist` if `key` is `exclude` and the user has set only `nodelist`.

    sbatch prints the same message about both.
    """
    if key == "exclude" and key not in keys and "nodelist" in keys:
        return "nodelist"
    return key


def _words(err: str) -> str:
    """Return the last two lines of sbatch's errors, because sbatch prints the cause last."""
    lines = [re.sub(r"^sbatch: (error: |fatal: )?", "", line).strip() for line in err.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Try ")]
    return "; ".join(lines[-2:])[:400]


#: Maps Slurm's reasons with which a job waits for ever to the key at fault, an explanation and a command.
NEVER = {
    "PartitionNodeLimit": ("nodes", "the partition has, or allows, fewer nodes", _SHOW_NODES),
    "PartitionConfig": ("", "no node of the partition has all that is asked for", _SHOW_NODES),
    "PartitionTimeLimit": ("time", "the partition's limit is shorter", "sinfo -o '%P %l'"),
    "BadConstraints": ("constraint", "no node has all that is asked for", _SHOW_NODES),
    "AccountNotAllowed": ("account", "the partition does not take this account", "scontrol show partition"),
    "QOSNotAllowed": ("qos", "the partition does not take this quality of service", "scontrol show partition"),
    "InvalidAccount": ("account", "Slurm does not know this account", "sacctmgr show assoc user=$USER"),
    "InvalidQOS": ("qos", "Slurm does not know this quality of service", "sacctmgr show qos"),
    "PartitionDown": ("partition", "the partition is down", "sinfo -o '%P %a'"),
    "PartitionInactive": ("partition", "the partition is inactive", "sinfo -o '%P %a'"),
    "ReservationDeleted": ("reservation", "the reservation is gone", "scontrol show reservation"),
}

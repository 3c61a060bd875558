"""What Kubernetes calls a job's objects: names, labels, places in a pod, variables. Pure."""

from __future__ import annotations

import hashlib
import re

PLATFORM = "kubernetes"
#: Where the owner's pod answers its agents.
PORT = 29400
#: Letters of a job's name: a pod's name, which is a host's name too, has `-INDEX-GENERATION` behind it, and 63.
MOST_NAME = 48

MANAGED_BY = "app.kubernetes.io/managed-by"
JOB = "holdfast/job"
PART = "holdfast/part"
NODE = "holdfast/node"
GENERATION = "holdfast/generation"
OWNER, AGENT = "owner", "agent"

#: The variable that says that a process is of a job on Kubernetes, and of which.
JOB_NAME = "HOLDFAST_KUBERNETES_JOB"
POD = "HOLDFAST_POD"
POD_UID = "HOLDFAST_POD_UID"
NAMESPACE = "HOLDFAST_NAMESPACE"
KUBERNETES_NODE = "HOLDFAST_NODE"
IMAGE = "HOLDFAST_IMAGE"
OWNER_ADDRESS = "HOLDFAST_OWNER"
KEY_FILE = "HOLDFAST_JOB_KEY"
#: Of an agent: its place among the job's nodes, from 0; ranks go by it.
NODE_INDEX = "HOLDFAST_NODE_INDEX"
#: Of an agent: how many workers it takes.
SLOTS = "HOLDFAST_SLOTS"

CONFIG_DIR = "/etc/holdfast"
JOB_FILE = "job.yaml"
PLAN_FILE = "plan.json"
KEY_DIR = "/etc/holdfast-key"
KEY = "key"
SECRETS = "secrets.json"
SECRETS_FILE = "HOLDFAST_SECRETS"
HOME = "/var/lib/holdfast"
#: HOLDFAST_HOME: in the volume, which everyone in the pod may write to, a directory of holdfast's own.
STATE = "/var/lib/holdfast/state"
EXCHANGE = "/usr/local/pai"
TERMINATION_LOG = "/dev/termination-log"

#: The containers of an agent's pod.
TASK, PREPARE = "task", "prepare"
#: The exit status of the owner's container where the job has failed for good: another pod of it would change nothing.
#: It is the contract with `podFailurePolicy`.
DO_NOT_RETRY = 78
#: holdfast's own status for an order that cannot be carried out; no retry would help here either.
BAD_USAGE = 2

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def object_name(job: str) -> str:
    """What the objects of a job are called: small letters, digits and `-`, a letter first, at most `MOST_NAME`.

    Two names that differ in capitals, or in `_` and `.`, become one; a name that has to be cut keeps apart by a hash.
    """
    name = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"j-{name}".rstrip("-")
    if len(name) > MOST_NAME:
        name = f"{name[: MOST_NAME - 7].rstrip('-')}-{hashlib.sha256(job.encode()).hexdigest()[:6]}"
    return name


def is_label(text: str) -> bool:
    """Whether a namespace can be called so (a label of DNS, RFC 1123)."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether a service account, a secret, a priority class can be called so."""
    return len(text) <= 253 and all(_LABEL.fullmatch(part) for part in text.split("."))


def key_secret(name: str) -> str:
    return f"{name}-key"


def job_config(name: str) -> str:
    return f"{name}-job"


def state_config(name: str) -> str:
    return f"{name}-state"


def pod_name(name: str, index: int, generation: int = 0) -> str:
    """Of the agent's pod of node `index`; `generation`: how many pods that node has had before."""
    return f"{name}-{index}-{generation}" if generation else f"{name}-{index}"


def owner_address(name: str, namespace: str) -> str:
    """Where agents dial: the headless service is found again when the owner has a new pod."""
    return f"{name}.{namespace}.svc:{PORT}"


def labels(name: str, part: str) -> dict[str, str]:
    """Of every object of a job."""
    return {MANAGED_BY: "holdfast", JOB: name, PART: part}


def selector(name: str, part: str = "") -> str:
    """A label selector for a job's objects."""
    return f"{JOB}={name},{PART}={part}" if part else f"{JOB}={name}"

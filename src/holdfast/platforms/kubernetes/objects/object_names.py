"""Names for a job's Kubernetes objects: labels, paths in a pod, environment variables."""

from __future__ import annotations

import hashlib
import re

PLATFORM = "kubernetes"
#: Port on which the owner's pod listens for agents.
PORT = 29400
#: Length limit of a job's name. A pod's name adds `-INDEX-GENERATION`. As a host name it must not exceed 63 characters.
MOST_NAME = 48

MANAGED_BY = "app.kubernetes.io/managed-by"
JOB = "holdfast.io/job"
PART = "holdfast.io/part"
NODE = "holdfast.io/node"
GENERATION = "holdfast.io/generation"
OWNER, AGENT = "owner", "agent"

#: The environment variable with the job's name. All processes of a job on Kubernetes have it.
JOB_NAME = "HOLDFAST_KUBERNETES_JOB"
POD = "HOLDFAST_POD"
POD_UID = "HOLDFAST_POD_UID"
NAMESPACE = "HOLDFAST_NAMESPACE"
KUBERNETES_NODE = "HOLDFAST_NODE"
IMAGE = "HOLDFAST_IMAGE"
OWNER_ADDRESS = "HOLDFAST_OWNER"
KEY_FILE = "HOLDFAST_JOB_KEY"
#: The variable with an agent's index among the job's nodes, from 0. The index determines the ranks.
NODE_INDEX = "HOLDFAST_NODE_INDEX"
#: The environment variable with the number of workers on an agent's node.
SLOTS = "HOLDFAST_SLOTS"

CONFIG_DIR = "/etc/holdfast"
JOB_FILE = "job.yaml"
PLAN_FILE = "plan.json"
KEY_DIR = "/etc/holdfast-key"
KEY = "key"
SECRETS = "secrets.json"
SECRETS_FILE = "HOLDFAST_SECRETS"
HOME = "/var/lib/holdfast"
#: HOLDFAST_HOME in the pod: holdfast's own directory in the volume. Everyone in the pod may write to the volume itself.
STATE = "/var/lib/holdfast/state"
EXCHANGE = "/usr/local/pai"
TERMINATION_LOG = "/dev/termination-log"

#: Names of the containers in an agent's pod.
TASK, PREPARE = "task", "prepare"
#: Exit status of the owner's container for a job that failed for good, so that Kubernetes starts no other pod.
#: `podFailurePolicy` depends on this value.
DO_NOT_RETRY = 78
#: holdfast's exit status for invalid usage. Kubernetes starts no other pod after this status either.
BAD_USAGE = 2

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def object_name(job: str) -> str:
    """Return the name for a job's objects.

    It has lower-case letters, digits and `-`, starts with a letter, and is at most `MOST_NAME` long. Two job names that
    differ only in capitals, or in `_` and `.`, get the same name. A name that has to be cut gets a hash to stay unique.
    """
    name = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"j-{name}".rstrip("-")
    if len(name) > MOST_NAME:
        name = f"{name[: MOST_NAME - 7].rstrip('-')}-{hashlib.sha256(job.encode()).hexdigest()[:6]}"
    return name


def is_label(text: str) -> bool:
    """Whether the text is a valid namespace, which is a DNS label of RFC 1123."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether the text is a valid name of a service account, a secret or a priority class."""
    return len(text) <= 253 and all(_LABEL.fullmatch(part) for part in text.split("."))


def key_secret(name: str) -> str:
    return f"{name}-key"


def job_config(name: str) -> str:
    return f"{name}-job"


def state_config(name: str) -> str:
    return f"{name}-state"


def pod_name(name: str, index: int, generation: int = 0) -> str:
    """Return the pod name for node `index`. `generation`: how many pods the node has had before."""
    return f"{name}-{index}-{generation}" if generation else f"{name}-{index}"


def place_of(name: str, pod: str) -> tuple[int, int] | None:
    """Return the node's index and the generation from the name of an agent's pod. Return None if the pod belongs to
    another job.
    """
    found = re.fullmatch(rf"{re.escape(name)}-(\d{{1,6}})(?:-(\d{{1,9}}))?", pod)
    return (int(found[1]), int(found[2] or 0)) if found else None


def owner_address(name: str, namespace: str) -> str:
    """Return the address at which agents reach the owner. The headless service leads to the owner's newest pod."""
    return f"{name}.{namespace}.svc:{PORT}"


def labels(name: str, part: str) -> dict[str, str]:
    """Return the labels for an object of the job `name`. `part`: the object's purpose, such as `AGENT`."""
    return {MANAGED_BY: "holdfast", JOB: name, PART: part}


def selector(name: str, part: str = "") -> str:
    """Return a label selector for the objects of the job `name`. `part`: only objects with this purpose; empty: all."""
    return f"{JOB}={name},{PART}={part}" if part else f"{JOB}={name}"

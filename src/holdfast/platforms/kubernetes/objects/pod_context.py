"""Read the environment variables and mounted files in a job's pod."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import BadUsage
from holdfast.platforms.kubernetes.objects import object_names
from holdfast.platforms.kubernetes.objects.pod_plan import PodPlan
from holdfast.platforms.kubernetes.objects.saved_state import Header
from holdfast.safe_files import read_file
from holdfast.untrusted import Malformed, json_as
from holdfast.version import __version__

#: The variable in an agent's pod that has the agent's order, without the key.
ORDER = "HOLDFAST_ORDER"
#: The variable with a random token. With it a restarted owner process in the same pod recognises the saved state as its
#: own.
OWNER_TOKEN = "HOLDFAST_OWNER_TOKEN"
#: The variable that overrides the path at which the job's ConfigMap is mounted.
CONFIG = "HOLDFAST_CONFIG_DIR"
MOST_PLAN_BYTES = 1 << 20


def in_owners_pod(environment: Mapping[str, str]) -> bool:
    """Whether this process must host the owner of a job on Kubernetes."""
    return (
        bool(environment.get(object_names.JOB_NAME))
        and object_names.OWNER_ADDRESS not in environment
        and "HOLDFAST_ATTEMPT" not in environment
    )


def plan_here(environment: Mapping[str, str]) -> PodPlan:
    """Read the plan of the job's pods, a file that `holdfast submit` wrote. Raises `BadUsage` for a user's mistake."""
    path = Path(environment.get(CONFIG) or object_names.CONFIG_DIR) / object_names.PLAN_FILE
    name, namespace = environment[object_names.JOB_NAME], environment.get(object_names.NAMESPACE, "default")
    hint = f"kubectl -n {namespace} get configmap {object_names.job_config(name)} -o yaml"
    try:
        return json_as(read_file(path, MOST_PLAN_BYTES), PodPlan)
    except OSError as error:
        raise BadUsage(
            f"{path}: {error.strerror}: expected the plan of the job's pods, which `holdfast submit --platform "
            "kubernetes` has written",
            hint=hint,
        ) from None
    except Malformed as error:
        raise BadUsage(
            f"{path}: {error}: expected the plan of the job's pods as holdfast {__version__} writes it", hint=hint
        ) from None


def node_name(node: str, pod: str) -> str:
    """Return a name for a pod's agent. It has the node's name for people, and the pod's name for kubectl."""
    return f"{node} (pod {pod})" if node else pod


def pod_of(name: str) -> str:
    """Extract the pod's name from a name that `node_name` made. Return "" if the name has no pod."""
    found = name.partition(" (pod ")[2]
    return found.removesuffix(")")


def over_words(header: Header) -> tuple[str, int]:
    """Return the message and the exit status for a new owner's pod if its job has already ended."""
    words = f"job {header.job_id} is over: {header.phrase} ({header.code}); this pod has nothing to do"
    return words, object_names.DO_NOT_RETRY if header.code else 0

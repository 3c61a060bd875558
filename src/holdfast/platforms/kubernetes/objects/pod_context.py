"""Read what a job's pod provides: variables and mounted files."""

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

#: The variable in an agent's pod that has its order, without the key.
ORDER = "HOLDFAST_ORDER"
#: The variable by which successive owner processes in one pod recognise the job's state as their own.
OWNER_TOKEN = "HOLDFAST_OWNER_TOKEN"
#: The variable that overrides the mount path of the job's ConfigMap.
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
    """Read the plan of the job's pods, which `holdfast submit` wrote. Raises `BadUsage`."""
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
    """Return the name of a pod's agent for messages. It has the machine for people, and the pod for kubectl."""
    return f"{node} (pod {pod})" if node else pod


def pod_of(name: str) -> str:
    """Return the pod's name from a name that `node_name` made; empty: that name has no pod."""
    found = name.partition(" (pod ")[2]
    return found.removesuffix(")")


def over_words(header: Header) -> tuple[str, int]:
    """Return a sentence and the exit status for a further owner's pod of a job that has already ended."""
    words = f"job {header.job_id} is over: {header.phrase} ({header.code}); this pod has nothing to do"
    return words, object_names.DO_NOT_RETRY if header.code else 0

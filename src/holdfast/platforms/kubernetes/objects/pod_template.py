"""Merge a user's pod template into the pods that holdfast makes.

The merge works like Kubernetes' strategic merge. Mappings are merged by key. Lists whose items have names (containers,
volumes, env …) are merged by name. Tolerations are added. Any other list is replaced. A template cannot override fields
that a gang's pod depends on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.platforms.kubernetes.objects import object_names

_MERGED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}
_ADDED = frozenset({"tolerations", "envFrom", "readinessGates", "schedulingGates", "add", "drop"})
#: Prefix of the names of holdfast's volumes.
_OURS = "holdfast-"
_NOT_IN_POD = {
    "restartPolicy": "a worker is started again in its pod by holdfast, and a lost pod gets a successor: the pod's own "
    "restartPolicy is Never",
    "nodeName": "holdfast avoids nodes that are held: use `node_selector` or an affinity",
}
_NOT_IN_META = {
    "name": "holdfast names the pods",
    "generateName": "holdfast names the pods",
    "namespace": "the job has one namespace: use `namespace` of the section",
    "ownerReferences": "the pods belong to the owner's Job, so that its deletion leaves nothing",
}
_NOT_IN_CONTAINER = {
    "command": "its command is `run` of the exchange directory; what the workers run stands in `roles`",
    "args": "its command takes no arguments; what the workers run stands in `roles`",
    "restartPolicy": "holdfast restarts workers in the container",
}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `over` merged in. Neither is changed. A `null` in `over` removes the key."""
    found = dict(base)
    for key, value in over.items():
        had = found.get(key)
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(had, Mapping):
            found[key] = merged(had, value)
        elif isinstance(value, list) and isinstance(had, list):
            found[key] = _lists(key, had, value)
        else:
            found[key] = _copy(value)
    return found


def _lists(key: str, had: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    if key in _ADDED:
        return [*had, *(_copy(item) for item in more if item not in had)]
    name = _MERGED_BY.get(key)
    if name is None or not all(isinstance(item, Mapping) and name in item for item in (*had, *more)):
        return [_copy(item) for item in more]
    found = {item[name]: item for item in had}
    for item in more:
        found[item[name]] = merged(found.get(item[name], {}), item)
    return list(found.values())


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items() if item is not None}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def template_refusal(template: Any, exchange: str = object_names.EXCHANGE) -> str:
    """Return why the template cannot be merged into a pod, with the field's path. Return "" if it can be merged.

    `exchange`: path at which the pod mounts holdfast's exchange directory.
    """
    for place, problem in _problems(template, exchange):
        return f"`{place}`: {problem}" if place else problem
    return ""


def _problems(template: Any, exchange: str) -> list[tuple[str, str]]:
    """Return all mistakes in a template, as (path of the field, explanation)."""
    if not isinstance(template, Mapping):
        return [("", "expected a mapping with `metadata` and `spec`, as the template of a pod has them")]
    if strange := [key for key in template if key not in ("metadata", "spec")]:
        hint = "; its fields belong under `spec`" if strange[0] in ("containers", "volumes", "tolerations") else ""
        return [(str(strange[0]), f"expected `metadata` and `spec` only{hint}")]
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    for key, value in (("metadata", meta), ("spec", spec)):
        if not isinstance(value, Mapping):
            return [(key, "expected a mapping")]
    found = [(f"metadata.{key}", why) for key, why in _NOT_IN_META.items() if key in meta]
    found += [
        (f"metadata.labels.{key}", "holdfast finds its pods by this label")
        for key in meta.get("labels") or {}
        if str(key).startswith("holdfast.io/") or key == object_names.MANAGED_BY
    ]
    found += [(f"spec.{key}", why) for key, why in _NOT_IN_POD.items() if key in spec]
    for volume in _named(spec, "volumes"):
        if str(volume.get("name")).startswith(_OURS):
            found.append((f"spec.volumes[{volume['name']}]", f"names that begin with {_OURS} are holdfast's own"))
    for kind in ("containers", "initContainers"):
        if kind in spec and not _all_named(spec[kind]):
            found.append(
                (f"spec.{kind}", f"expected a list of containers with names; the user's is `{object_names.TASK}`")
            )
        for container in _named(spec, kind):
            found += _of_container(f"spec.{kind}[{container['name']}]", container, exchange)
    return found


def _of_container(place: str, container: Mapping[str, Any], exchange: str) -> list[tuple[str, str]]:
    found = []
    if container["name"] in (object_names.TASK, object_names.PREPARE):
        found += [(f"{place}.{key}", why) for key, why in _NOT_IN_CONTAINER.items() if key in container]
        for mount in container.get("volumeMounts") or []:
            at = str(mount.get("mountPath", "")).rstrip("/") if isinstance(mount, Mapping) else ""
            if at in (exchange, object_names.KEY_DIR, object_names.HOME, object_names.CONFIG_DIR):
                found.append((f"{place}.volumeMounts[{at}]", "holdfast mounts its own volume there"))
        for item in _named(container, "env"):
            if str(item["name"]).startswith("HOLDFAST_"):
                found.append((f"{place}.env[{item['name']}]", "variables that begin with HOLDFAST_ are holdfast's own"))
    return found


def _named(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = parent.get(key)
    return [item for item in value if isinstance(item, Mapping) and "name" in item] if isinstance(value, list) else []


def _all_named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and item.get("name") for item in value)

"""Explains why the API server refuses to create an object of the job, and how the user can mend it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.model.noun_base import Noun
from holdfast.platforms.kubernetes.objects.client_messages import Answered, ApiTrouble

#: Failures whose cause is not the job: no client, no server, no answer.
_OURS = frozenset({ApiTrouble.AWAY, ApiTrouble.SLOW, ApiTrouble.MISSING, ApiTrouble.FAILED})


class CreateRefusal(Noun, frozen=True, kw_only=True):
    """Why the API server refused to create one object."""

    #: The reason for the refusal as a clause, with Kubernetes' own message.
    said: str
    hint: str
    #: The key of the `kubernetes:` section that caused the refusal, if known.
    key: str = ""
    #: True if the cause is not the job. The job may then be correct.
    ours: bool = False


def create_refusal(answer: Answered, *, kind: str, namespace: str) -> CreateRefusal:
    """Explain why the server refuses to create an object. `answer`: the server's answer. `kind`: such as "Role"."""
    words = answer.said
    plural = f"{kind.lower()}s"
    if answer.trouble is ApiTrouble.MISSING:
        return CreateRefusal(said=words, hint="export KUBECONFIG=…; kubectl config get-contexts", ours=True)
    if answer.trouble in _OURS:
        return CreateRefusal(said=words, hint="kubectl version; kubectl get --raw /readyz", ours=True)
    if answer.status == 401:
        return CreateRefusal(
            said=f"the API server does not know who asks ({words})", hint="kubectl auth can-i create jobs", ours=True
        )
    if answer.trouble is ApiTrouble.QUOTA:
        return CreateRefusal(
            said=f"a quota of the namespace is used up: {words}",
            hint=f"kubectl describe quota -n {namespace}",
            key=_of_quota(words),
        )
    if missing := re.search(r'namespaces "([^"]+)" not found', words):
        return CreateRefusal(
            said=f"there is no namespace {missing[1]} ({words})",
            hint=f"kubectl create namespace {missing[1]}; kubectl get namespaces",
            key="namespace",
        )
    if being := re.search(r"because it is being terminated", words):
        return CreateRefusal(
            said=f"the namespace {namespace} {being[0].removeprefix('because it ')} ({words})",
            hint="kubectl get namespaces",
            key="namespace",
        )
    if webhook := re.search(r'admission webhook "([^"]+)" denied the request:? ?(.*)', words):
        return CreateRefusal(
            said=f"the cluster's own rule {webhook[1]} refuses it: {webhook[2] or words}",
            hint="kubectl get validatingwebhookconfigurations",
        )
    return _of_rights(words, plural, namespace) or _of_fields(words, kind, namespace, answer)


def _of_rights(words: str, plural: str, namespace: str) -> CreateRefusal | None:
    """Explain a refusal because of a missing right, account or priority class, or because of pod security.

    Return None for other reasons.
    """
    if "is attempting to grant RBAC permissions not currently held" in words:
        return CreateRefusal(
            said="the owner's Role may not have more rights than who creates it, and you lack some of them: an "
            f"administrator can make a service account for owners, which `owner_service_account` names ({words})",
            hint=f"kubectl auth can-i --list -n {namespace}",
            key="owner_service_account",
        )
    if found := re.search(r"cannot (\w+) resource \"([^\"]+)\"(?: in API group \"([^\"]*)\")?", words):
        group = f".{found[3]}" if found[3] else ""
        account = (
            "; an administrator can make a service account for owners, which `owner_service_account` names"
            if found[2] in ("roles", "rolebindings", "serviceaccounts")
            else ""
        )
        return CreateRefusal(
            said=f"you may not {found[1]} {found[2]} in namespace {namespace}{account} ({words})",
            hint=f"kubectl auth can-i {found[1]} {found[2]}{group} -n {namespace}",
            key="namespace",
        )
    if found := re.search(r"no PriorityClass with name (\S+) was found", words):
        return CreateRefusal(
            said=f"there is no priority class {found[1]} ({words})",
            hint="kubectl get priorityclasses",
            key="priority_class",
        )
    if found := re.search(r'service ?account "?([^" ]+)"? was not found|serviceaccount "([^"]+)" not found', words):
        name = (found[1] or found[2]).rpartition("/")[2]
        return CreateRefusal(
            said=f"there is no service account {name} in namespace {namespace} ({words})",
            hint=f"kubectl get serviceaccounts -n {namespace}",
            key="service_account",
        )
    if found := re.search(r"(cpu|memory)[^:,]* (?:per|ratio per) (?:Container|Pod) is", words):
        return CreateRefusal(
            said=f"a LimitRange of the namespace does not allow it: {words}",
            hint=f"kubectl describe limitrange -n {namespace}",
            key="cpus" if found[1] == "cpu" else "memory",
        )
    if "violates PodSecurity" in words:
        return CreateRefusal(
            said=f"the namespace's Pod Security level does not allow such pods: {words}",
            hint=f"kubectl get namespace {namespace} --show-labels; and `pod_security: restricted` of the "
            "section, without what `template` adds",
            key="template",
        )
    return None


def _of_fields(words: str, kind: str, namespace: str, answer: Answered) -> CreateRefusal:
    """Explain why the server rejects the contents of an object."""
    if answer.trouble is ApiTrouble.INVALID:
        key = "template" if kind == "Pod" else ""
        for part, name in (
            ("tolerations", "tolerations"),
            ("nodeSelector", "node_selector"),
            (".image:", "image"),
            ("resources", "memory"),
            ("priorityClassName", "priority_class"),
        ):
            if part in words:
                key = name
                break
        return CreateRefusal(
            said=f"the API server does not take the {kind}: {words}",
            hint="holdfast submit --platform kubernetes --dry-run … | kubectl apply --dry-run=server -f -",
            key=key,
        )
    return CreateRefusal(said=words, hint=f"kubectl get {kind.lower()}s -n {namespace}")


def _of_quota(words: str) -> str:
    """Return the key of the `kubernetes:` section for the resource that exceeds the quota; empty if unknown."""
    requested = words.partition("requested:")[2].partition("used:")[0]
    for part, key in (("gpu", "gpus"), ("memory", "memory"), ("cpu", "cpus"), ("pods", "nodes")):
        if part in requested:
            return key
    return ""


def in_words(found: CreateRefusal, origins: Mapping[str, str]) -> str:
    """Return the whole sentence for the user. It begins with the origin of the wrong value, if known.

    `origins`: maps each key to the option or file that has set it.
    """
    where = f"{origins[found.key]}: " if found.key in origins else ""
    return f"{where}the job was not submitted: {found.said}"

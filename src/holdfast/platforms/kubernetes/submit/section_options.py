"""The keys of a job file's `kubernetes:` section that are also options of `holdfast submit`."""

from __future__ import annotations

from holdfast.platforms.submission import SHARED, SubmitOption

# fmt: off
SUBMIT_OPTIONS = (
    *SHARED,
    SubmitOption("namespace", ("--namespace", "-n"), "NAME", "Kubernetes: the namespace.  [the context's]"),
    SubmitOption("image", ("--image",), "IMAGE", "Kubernetes: the image that workers run in."),
    SubmitOption("holdfast-image", ("--holdfast-image",), "IMAGE", "Kubernetes: the image with holdfast in it."),
    SubmitOption("queue", ("--queue",), "NAME", "Kubernetes: the queue of Kueue or Volcano."),
    SubmitOption("gang", ("--gang",), "WAY", "Kubernetes: who places all pods at once.  [auto]"),
    SubmitOption("priority-class", ("--priority-class",), "NAME", "Kubernetes: the priority class of all pods."),
    SubmitOption("service-account", ("--service-account",), "NAME", "Kubernetes: the workers' service account."),
    SubmitOption("may-taint", ("--may-taint/--no-may-taint",), "",
                 "Kubernetes: taint a node that a person has to look at.  [no]"),
)
# fmt: on

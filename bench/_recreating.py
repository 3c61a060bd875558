"""What restarts a gang by making its pods anew: `_recreating.py NAMESPACE POD.json COUNT`, with lightkube.

It does at once what a controller does that knows pods alone: as soon as one has failed, all are deleted, and the next
ones are made under other names, so that nothing is waited for. It ends when all pods of one generation have succeeded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lightkube import Client
from lightkube.resources.core_v1 import Pod

LABEL = "generation"


def make(client: Client, namespace: str, template: str, generation: int, count: int) -> None:
    for index in range(count):
        text = template.replace("GENERATION", str(generation)).replace("INDEX", str(index))
        pod: Any = Pod.from_dict(json.loads(text))
        client.create(pod, namespace=namespace)


def main() -> None:
    namespace, file, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    template = file.read_text()
    client = Client(namespace=namespace)
    generation = 1
    done: set[str | None] = set()
    make(client, namespace, template, generation, count)
    for _, pod in client.watch(Pod, namespace=namespace):
        assert pod.metadata and pod.metadata.labels and pod.status
        if pod.metadata.labels.get(LABEL) != str(generation):
            continue
        if pod.status.phase == "Failed":
            names = [f"train-{generation}-{index}" for index in range(count)]
            generation, done = generation + 1, set()
            make(client, namespace, template, generation, count)
            for name in names:
                client.delete(Pod, name, namespace=namespace)
        elif pod.status.phase == "Succeeded":
            done.add(pod.metadata.name)
            if len(done) == count:
                return


if __name__ == "__main__":
    main()

"""The cluster of the tests is a real one: what the tests of the product rely on."""

from __future__ import annotations

import sys

from real_kubernetes import Object, Shared


def pod(name: str, namespace: str, *command: str, **spec: object) -> Object:
    container = {"name": "task", "image": "localhost/busybox:1", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }


def test_pods_of_two_nodes_find_one_another_by_the_name_of_a_headless_service(kubernetes: Shared) -> None:
    space = kubernetes.namespace()
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "meet", "namespace": space},
        "spec": {"clusterIP": "None", "selector": {"app": "host"}, "publishNotReadyAddresses": True},
    }
    there, here = kubernetes.ordinary[:2]
    serve = "echo -e 'HTTP/1.0 200 OK\\n\\nwell met' | nc -l -p 8000"
    ask = f"until wget -q -O - http://meet.{space}.svc:8000; do sleep 0.2; done"
    kubernetes.apply(
        service,
        pod("host", space, "sh", "-c", serve, nodeName=there),
        pod("guest", space, "sh", "-c", ask, nodeName=here),
    )
    kubernetes.wait(lambda: kubernetes.phase("guest", space) == "Succeeded", "the guest has met the host")
    assert kubernetes.logs("guest", space).endswith("well met\n")


def test_a_pod_may_ask_the_api_server_what_its_account_may(kubernetes: Shared) -> None:
    space = kubernetes.namespace()
    kubernetes("kubectl", "-n", space, "create", "role", "reads", "--verb=get,list", "--resource=pods")
    bound = ("--role=reads", f"--serviceaccount={space}:default")
    kubernetes("kubectl", "-n", space, "create", "rolebinding", "reads", *bound)
    where = "/var/run/secrets/kubernetes.io/serviceaccount"
    ask = f"""
    ask() {{ wget --no-check-certificate -q -O - --header "Authorization: Bearer $(cat {where}/token)" \
      https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/{space}/$1; }}
    ask pods | grep -c '"name": "asks"'; ask secrets 2>&1
    """
    kubernetes.apply(pod("asks", space, "sh", "-c", ask))
    kubernetes.wait(lambda: kubernetes.phase("asks", space) in ("Succeeded", "Failed"), "it has asked")
    said = kubernetes.logs("asks", space)
    assert said.splitlines()[0] != "0" and "403" in said


def test_a_node_without_power_is_seen_and_comes_back(kubernetes_breaks: Shared) -> None:
    cluster, last = kubernetes_breaks, kubernetes_breaks.breakable[-1]
    cluster.off(last)
    cluster.wait(lambda: not cluster.ready(last), f"{last} is not ready")
    cluster.boot(last)
    assert cluster.ready(last)


def test_an_image_that_is_nowhere_is_told_of_in_kubernetes_words(kubernetes: Shared) -> None:
    space = kubernetes.namespace()
    missing = pod("lost", space, "true")
    missing["spec"]["containers"][0]["image"] = "localhost:1/nowhere:1"
    kubernetes.apply(missing)

    def waiting() -> str:
        states = kubernetes.get("pod", "lost", space)["status"].get("containerStatuses") or [{}]
        return str(states[0].get("state", {}).get("waiting", {}).get("reason", ""))

    kubernetes.wait(lambda: waiting() in ("ErrImagePull", "ImagePullBackOff"), "the pull has failed")


def test_the_tests_python_and_holdfast_run_on_the_control_plane(kubernetes: Shared) -> None:
    assert "holdfast" in kubernetes(sys.executable, "-m", "holdfast", "--version")

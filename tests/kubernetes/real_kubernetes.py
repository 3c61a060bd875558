"""A real Kubernetes 1.20.2 on one machine: etcd, API server, controllers, scheduler, nodes of containerd and kubelet.

All of it runs in the namespaces of netns.py: the nodes are called k1, k2, …, and `ctl` has the control plane and the
cluster's DNS. Nothing has a name or a port in the machine's own network, so that several clusters run side by side;
where the test is killed, the kernel takes everything back but the control groups, which the next cluster removes.

`build.sh` makes the four servers (BIN: cached by version). `python tests/kubernetes/real_kubernetes.py [-n 2]` brings a
cluster up, and opens a shell with `kubectl` on its control plane.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import hashlib
import http.client
import json
import os
import secrets
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from images import Image, archive, busybox, empty, pause

from netns import CGROUPS, SYSTEM_PATH, Net, Node, Started, within
from netns import missing as missing_nodes

HERE = Path(__file__).parent
CTL, PREFIX = "ctl", "hf-kube-"
#: A limit for what always happens: it is long since the machine may be busy.
WAIT_S = 120.0
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
TOOLS = ("etcd", "containerd", "ctr", "runc", "dnsmasq", "kubectl", "openssl", "busybox")
PACKAGES = (
    "etcd-server containerd runc containernetworking-plugins dnsmasq-base kubernetes-client openssl busybox-static "
    "catatonit"
)
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
#: What the kubelet wants of the kernel.
KERNEL = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}
#: Of the cluster's own network: services, the API server's among them, and the first half of pods' addresses.
SERVICES, SERVICE, PODS = "10.96.0.0/24", "10.96.0.1", "10.244"
Object = dict[str, Any]


def _cache() -> Path:
    version = hashlib.sha256((HERE / "build.sh").read_bytes()).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("HOLDFAST_TESTS_CACHE") or Path(home) / "holdfast-tests"
    return Path(cache) / f"kubernetes-1.20.2-{version}"


#: Where `build.sh` puts the servers: another script makes another place.
BIN = _cache()


@functools.cache
def missing() -> str:
    """Why there can be no Kubernetes here, in words; empty: there can."""
    for tool in TOOLS:
        if shutil.which(tool, path=SYSTEM_PATH) is None:
            return f"there is no {tool} here (apt-get install {PACKAGES})"
    if not all((BIN / server).exists() for server in SERVERS):
        return f"Kubernetes is not built here (tests/kubernetes/build.sh {BIN})"
    if lacking := [name for name in CONTROLLERS if not (CGROUPS / name).is_dir()]:
        return f"the kubelet of 1.20 needs the control groups of version 1; {CGROUPS} has no {', '.join(lacking)}"
    return missing_nodes()


class Kubernetes:
    """One cluster. `with Kubernetes(2) as cluster: cluster.apply(pod); cluster.wait(…)`."""

    def __init__(self, nodes: int = 2, *, images: Sequence[Image] = (), token: str = "") -> None:
        """`images`: what nodes have beside localhost/busybox:1 and localhost/host:1; no registry can be reached."""
        _remove_what_was_killed()
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        place.chmod(0o755)
        self._describe(place, nodes, images, token)

    def _describe(self, place: Path, nodes: int, images: Sequence[Image] = (), token: str = "") -> None:
        self.place = place
        self.names = [f"k{number}" for number in range(1, nodes + 1)]
        self.images = (pause(), busybox(), empty(), *images)
        #: HOME and the working directory of commands on the control plane.
        self.home = self.place / "home"
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "PET_", "TORCHELASTIC_", "XDG_", "SLURM", "KUBE"))
            and name not in ("PYTHONDONTWRITEBYTECODE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        }
        env["PATH"] = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        env["KUBECONFIG"] = str(self.kubeconfig)
        if token:
            env[token] = "1"
        self.net = Net(self.place, env=env, hosts=[*self.names, CTL], clocks_apart=False)
        for node in self.net:
            node.env = {"HOME": str(self.home), "HOLDFAST_HOME": str(self.home / "state")}
        self._daemons: dict[str, Started] = {}
        self._stack = ExitStack()
        #: `line`: this thread's connection to the API server, which closes it after a while.
        self._of_thread = threading.local()
        #: The namespaces that were made here.
        self.spaces: list[str] = []

    # ------------------------------------------------------------------------------------------------- up and down

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        new = self.place / "held.new"
        fcntl.flock(self._stack.enter_context(new.open("w")), fcntl.LOCK_EX)
        new.rename(self.place / "held")  # no other process finds it unlocked while this one lives
        for name in ("pki", "log", "home", "run"):
            (self.place / name).mkdir()
        self._stack.enter_context(self.net)
        self._keys()
        with ThreadPoolExecutor() as pool:
            file = pool.submit(archive, self._images, self.images)
            self._control_plane()
            file.result()
            list(pool.map(self._boot, self.names))
        self.wait(lambda: self._ask("GET", _path("sa", "default", "default"))[0] == 200, "the default account is there")

    def down(self) -> None:
        """Everything ends at once, and leaves no file."""
        self._stack.close()
        _remove_cgroups(self.place.name)
        shutil.rmtree(self.place, ignore_errors=True)

    @property
    def kubeconfig(self) -> Path:
        return self.place / "kubeconfig"

    @property
    def _images(self) -> Path:
        return self.place / "images.tar"

    def _keys(self) -> None:
        pki, address = self.place / "pki", self.node(CTL).address
        curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=kube-apiserver"
        files = f"-keyout {pki}/apiserver.key -out {pki}/apiserver.crt"
        names = f"IP:{address},IP:127.0.0.1,IP:{SERVICE},DNS:localhost,DNS:kubernetes.default.svc"
        for words in (
            f"genrsa -out {pki}/sa.key 2048",
            f"rsa -in {pki}/sa.key -pubout -out {pki}/sa.pub",
            f"req -x509 {curve} -nodes -days 30 -addext subjectAltName={names} {files}",
        ):
            subprocess.run(["openssl", *words.split()], capture_output=True, check=True)
        token = secrets.token_hex(16)
        (pki / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        (pki / "tokens.csv").chmod(0o600)
        authority = base64.b64encode((pki / "apiserver.crt").read_bytes()).decode()
        server = {"server": f"https://{address}:443", "certificate-authority-data": authority}
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "sandbox", "cluster": server}],
                    "users": [{"name": "admin", "user": {"token": token}}],
                    "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
                    "current-context": "sandbox",
                }
            )
        )

    def _control_plane(self) -> None:
        pki, ctl = self.place / "pki", self.node(CTL)
        # A disk of its own, in memory: etcd waits for each write. The API server answers at its service's address too.
        ctl("sh", "-ec", f"mkdir {self.place}/etcd && mount -t tmpfs -o size=512m,mode=700 tmpfs {self.place}/etcd")
        ctl("sh", "-ec", f"sysctl -qw net.ipv4.ip_forward=1; ip addr add {SERVICE}/32 dev lo")
        for number, name in enumerate(self.names, 1):
            ctl("ip", "route", "replace", f"{PODS}.{number}.0/24", "via", self.node(name).address)
        etcd = "http://127.0.0.1:2379"
        self._daemon(
            CTL,
            *("etcd", "--data-dir", f"{self.place}/etcd/d", "--unsafe-no-fsync"),
            *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380"),
            *("--initial-cluster", "default=http://127.0.0.1:2380"),
            name="etcd",
        )
        self.api_start()
        for server, more in (
            (
                "kube-controller-manager",
                (
                    f"--service-account-private-key-file={pki}/sa.key",
                    f"--root-ca-file={pki}/apiserver.crt",
                    "--node-monitor-period=1s",
                    "--node-monitor-grace-period=5s",
                    "--node-startup-grace-period=10s",
                ),
            ),
            ("kube-scheduler", ()),
        ):
            common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1")
            self._daemon(CTL, BIN / server, *common, f"--cert-dir={pki}", *more, name=server)
        hosts, pid = self.place / "run" / "hosts", self.place / "run" / "dnsmasq.pid"
        hosts.touch()
        self._daemon(
            CTL,
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root"),
            *(f"--addn-hosts={hosts}", f"--listen-address={ctl.address}", "--bind-interfaces", f"--pid-file={pid}"),
            *("--local=/cluster.local/", "--local-ttl=0"),
            name="dnsmasq",
        )
        self._daemon(CTL, sys.executable, HERE / "names.py", self.kubeconfig, hosts, pid, name="names")

    def api_start(self) -> None:
        """The API server, from what etcd has."""
        pki, ctl = self.place / "pki", self.node(CTL)
        self._daemon(
            CTL,
            *(BIN / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0"),
            *("--secure-port=443", f"--advertise-address={ctl.address}", f"--service-cluster-ip-range={SERVICES}"),
            *(f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key"),
            *(f"--token-auth-file={pki}/tokens.csv", "--authorization-mode=RBAC", "--allow-privileged=true"),
            *("--kubelet-preferred-address-types=InternalIP", "--default-not-ready-toleration-seconds=2"),
            *("--default-unreachable-toleration-seconds=2", f"--service-account-key-file={pki}/sa.pub"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--anonymous-auth=false"),
            f"--service-account-signing-key-file={pki}/sa.key",
            name="kube-apiserver",
        )
        self.wait(lambda: self._ask("GET", "/readyz")[0] == 200, "the API server answers")

    def api_kill(self) -> None:
        """SIGKILL to the API server: nodes and pods go on without it."""
        self._kill("kube-apiserver")

    # ----------------------------------------------------------------------------------------------------- nodes

    def node(self, name: str) -> Node:
        return self.net[([*self.names, CTL]).index(name) + 1]

    def _boot(self, name: str) -> None:
        node, number, group = self.node(name), self.names.index(name) + 1, f"{self.place.name}-{name}"
        own = node.place / "kube"
        shutil.rmtree(own / "run", ignore_errors=True)
        for part in ("cni", "kubelet", "pki", "run"):
            (own / part).mkdir(parents=True, exist_ok=True)
        for controller in CONTROLLERS:
            (CGROUPS / controller / group).mkdir(exist_ok=True)
        for part in ("cpus", "mems"):
            among = CGROUPS / "cpuset"
            (among / group / f"cpuset.{part}").write_text((among / f"cpuset.{part}").read_text())
        # The kubelet sets these for the whole kernel, unless they are so already: a node shows it files of its own.
        files = {name: own / name.replace("/", ".") for name in KERNEL}
        own_settings = "\n".join(
            f"echo {KERNEL[name]} >{file}; mount --bind {file} /proc/sys/{name}" for name, file in files.items()
        )
        # No default route: the kubelet would look for a cloud's metadata, and wait. A mount of version 2 confuses runc.
        # Logs of its own: a kubelet removes those of pods that it does not know, another cluster's too.
        node(
            "sh",
            "-ec",
            f"""
            sysctl -qw net.ipv4.ip_forward=1
            umount {CGROUPS}/unified 2>/dev/null || :
            for logs in /var/log/pods /var/log/containers; do mkdir -p $logs; mount -t tmpfs tmpfs $logs; done
            ip route replace {PODS}.0.0/16 via {self.node(CTL).address}
            ip route replace {SERVICES} via {self.node(CTL).address}
            {own_settings}
            """,
        )
        (own / "cni" / "10.conflist").write_text(json.dumps(_network(name, number, own)))
        (own / "containerd.toml").write_text(CONTAINERD.format(own=own))
        (own / "kubelet.json").write_text(json.dumps(_kubelet(group, self.node(CTL).address)))
        self._daemon(name, "containerd", "-c", own / "containerd.toml", name=f"containerd-{name}")
        ctr = ("ctr", "-a", own / "run" / "containerd.sock")
        self.wait(lambda: self.start(*ctr, "version", on=name).wait() == 0, f"{name}: containerd answers")
        self(*ctr, "-n", "k8s.io", "images", "import", self._images, on=name)
        self.kubelet_start(name)
        self.wait(lambda: self.ready(name), f"{name} is ready")

    def load(self, *images: Image, on: Sequence[str] = ()) -> None:
        """Further images, on all nodes or on these."""
        file = archive(self.place / f"images-{time.monotonic_ns()}.tar", images)
        self.load_archive(file, on=on)
        file.unlink()

    def load_archive(self, file: Path, on: Sequence[str] = ()) -> None:
        """What `podman save` or `archive` has written, on all nodes or on these."""
        for name in on or self.names:
            sock = self.node(name).place / "kube" / "run" / "containerd.sock"
            self("ctr", "-a", sock, "-n", "k8s.io", "images", "import", file, on=name, timeout_s=300)

    def ready(self, name: str) -> bool:
        """Whether Kubernetes calls this node Ready."""
        status, node = self._ask("GET", _path("node", name=name))
        conditions = json.loads(node)["status"].get("conditions", ()) if status == 200 else ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def off(self, name: str) -> None:
        """Power cut: the link is down, then everything on the node is killed."""
        self.node(name).power_cut()
        for daemon in (f"containerd-{name}", f"kubelet-{name}"):
            self._daemons.pop(daemon, None)
        _remove_cgroups(f"{self.place.name}-{name}")

    def boot(self, name: str) -> None:
        """Power on."""
        self.node(name).boot()
        self._boot(name)

    def cut(self, name: str) -> None:
        """The node's link is down."""
        self.node(name).link_down()

    def join(self, name: str) -> None:
        """The node's link is up again."""
        self.node(name).link_up()

    def kubelet_kill(self, name: str) -> None:
        """SIGKILL to the kubelet: its pods go on without it."""
        self._kill(f"kubelet-{name}")

    def kubelet_start(self, name: str) -> None:
        own, address = self.node(name).place / "kube", self.node(name).address
        self._daemon(
            name,
            *(BIN / "kubelet", f"--config={own}/kubelet.json", f"--kubeconfig={self.kubeconfig}"),
            *(f"--hostname-override={name}", f"--root-dir={own}/kubelet", f"--cert-dir={own}/pki"),
            *("--container-runtime=remote", f"--container-runtime-endpoint=unix://{own}/run/containerd.sock"),
            f"--node-ip={address}",
            name=f"kubelet-{name}",
        )

    def _daemon(self, on: str, *words: str | Path, name: str) -> None:
        """It has an environment of its own, as a system's service has."""
        bare = ("env", "-i", f"PATH={SYSTEM_PATH}", f"HOME={self.home}")
        self._daemons[name] = self.node(on).start(*bare, *words)

    def _kill(self, daemon: str) -> None:
        started = self._daemons.pop(daemon)
        started.send(9)
        started.wait()

    # --------------------------------------------------------------------------------------------------- clients

    def start(self, *words: str | Path, on: str = CTL, env: Mapping[str, str] | None = None) -> Started:
        """A command on the control plane, where KUBECONFIG is set, or on a node."""
        return self.node(on).start(*words, env=env, chdir=self.home)

    def __call__(
        self, *words: str | Path, on: str = CTL, env: Mapping[str, str] | None = None, timeout_s: float = WAIT_S
    ) -> str:
        """A command to its end, which must be a good one; what it printed."""
        started = self.start(*words, on=on, env=env)
        status = started.wait(timeout_s)
        assert status == 0, f"{on}: {' '.join(map(str, words))} ended with {status}\n{started.err}"
        return started.out

    def holdfast(self, *words: str | Path, **how: Any) -> Started:
        """`holdfast …` where an administrator types it."""
        return self.start(sys.executable, "-m", "holdfast", *words, **how)

    def kubectl(self, *words: str | Path) -> str:
        return self("kubectl", *words)

    def _ask(self, method: str, path: str, body: Object | None = None) -> tuple[int, bytes]:
        """A request of the administrator's; status 0: no answer. kubectl takes 50 ms of a core for the same."""
        merges = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": merges}
        for line in (getattr(self._of_thread, "line", None), None):
            try:
                line = self._of_thread.line = line or self._dial()
                line.request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = line.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):  # the server has closed the line, or is away
                if line is not None:
                    line.close()
                self._of_thread.line = None
        return 0, b""

    def _hang_up(self) -> None:
        """Close this thread's connection: one that the collector finds after the last test fails the run."""
        if (line := getattr(self._of_thread, "line", None)) is not None:
            line.close()
            self._of_thread.line = None

    def _dial(self) -> http.client.HTTPSConnection:
        address, trusted = self.node(CTL).address, ssl.create_default_context(cafile=self.place / "pki/apiserver.crt")
        line = http.client.HTTPSConnection(address, 443, timeout=30, context=trusted)
        with within(self.node(CTL)):
            line.connect()
        return line

    @functools.cached_property
    def _token(self) -> str:
        config = json.loads(self.kubeconfig.read_text())
        return str(config["users"][0]["user"]["token"])

    def _do(self, method: str, path: str, body: Object | None = None) -> Object:
        status, answer = self._ask(method, path, body)
        assert 200 <= status < 300, f"{method} {path}: {status} {answer.decode(errors='replace')[:2000]}"
        found: Object = json.loads(answer)
        return found

    def get(self, kind: str, name: str = "", namespace: str = "default") -> Object:
        """An object, or a list of all that the namespace has."""
        return self._do("GET", _path(kind, namespace, name))

    def items(self, kind: str, namespace: str = "default", labels: str = "") -> list[Object]:
        """`kind` may be several: `jobs,pods`."""
        selector = f"?labelSelector={urllib.parse.quote(labels)}" if labels else ""
        found = [self._do("GET", _path(each, namespace) + selector)["items"] for each in kind.split(",")]
        return [each for some in found for each in some]

    def apply(self, *objects: Object) -> None:
        """Create them, or merge this into them."""
        for each in objects:
            kind, meta = str(each["kind"]).lower(), each["metadata"]
            space, name = meta.get("namespace", "default"), meta["name"]
            status, answer = self._ask("POST", _path(kind, space), each)
            if status == 409:
                self._do("PATCH", _path(kind, space, name), each)
            else:
                assert status in (200, 201), f"{kind} {name}: {status} {answer.decode(errors='replace')}"

    def namespace(self) -> str:
        """A new one, with its default account."""
        name = f"t{time.monotonic_ns()}"
        self._do("POST", _path("namespace"), {"metadata": {"name": name}})
        self.spaces.append(name)

        def usable() -> bool:
            status, account = self._ask("GET", _path("sa", name, "default"))
            return status == 200 and bool(json.loads(account).get("secrets"))

        self.wait(usable, f"the namespace {name} has its account, and this a token")
        return name

    def logs(self, pod: str, namespace: str = "default") -> str:
        """What the pod's one container has printed; empty: it has none yet."""
        status, answer = self._ask("GET", f"{_path('pod', namespace, pod)}/log")
        return answer.decode(errors="replace") if status == 200 else ""

    def phase(self, pod: str, namespace: str = "default") -> str:
        """A pod's phase; empty: there is no such pod."""
        status, answer = self._ask("GET", _path("pod", namespace, pod))
        return str(json.loads(answer)["status"].get("phase", "")) if status == 200 else ""

    def wait(self, what: Callable[[], bool], words: str, limit_s: float = WAIT_S) -> None:
        """Until this is so; it must become so."""
        until = time.monotonic() + limit_s
        while True:
            began = time.monotonic()
            if what():
                return
            now = time.monotonic()
            assert now < until, f"not so within {limit_s:g} s: {words}\n{self.told()}"
            # A look that starts a process must not take the core that the pods need.
            time.sleep(min(1, max(0.1, 4 * (now - began))))

    def told(self) -> str:
        """The last that each daemon has written: for a test that has failed."""
        found = []
        for name, daemon in self._daemons.items():
            last = daemon.err.splitlines()[-8:] if daemon.err_file.exists() else []
            found += [f"{name}: {line[:300]}" for line in last]
        return "\n".join(found)

    def shell(self) -> None:
        """A shell on the control plane, for a person."""
        self.node(CTL).shell(self.home)


CONTAINERD = """
version = 2
root = "{own}/ctd"
state = "{own}/run/ctd"
oom_score = 0
[grpc]
  address = "{own}/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{own}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


KINDS = {
    "v1": "pods nodes namespaces secrets configmaps services serviceaccounts events resourcequotas limitranges",
    "batch/v1": "jobs",
    "rbac.authorization.k8s.io/v1": "roles rolebindings clusterroles clusterrolebindings",
    "scheduling.k8s.io/v1": "priorityclasses",
}
CLUSTER_WIDE = ("nodes", "namespaces", "clusterroles", "clusterrolebindings", "priorityclasses")
OF = {name: (version, name) for version, names in KINDS.items() for name in names.split()}
OF |= {name.removesuffix("s"): where for name, where in OF.items()}
OF |= {"sa": OF["serviceaccounts"], "priorityclass": OF["priorityclasses"]}


def _path(kind: str, namespace: str = "", name: str = "") -> str:
    """Where the API has an object; without a name, all of this kind."""
    version, plural = OF[kind]
    api = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    within = "" if plural in CLUSTER_WIDE else f"/namespaces/{namespace}"
    return f"{api}{within}/{plural}" + (f"/{name}" if name else "")


def _network(name: str, number: int, own: Path) -> Object:
    addresses = {"type": "host-local", "subnet": f"{PODS}.{number}.0/24", "dataDir": f"{own}/run/ipam"}
    addresses["routes"] = [{"dst": "0.0.0.0/0"}]  # type: ignore[assignment]  # JSON: a list among words
    return {
        "cniVersion": "0.4.0",
        "name": name,
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}],
    }


def _kubelet(group: str, dns: str) -> Object:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "10Mi"},
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 4,
        "syncFrequency": "5s",
        "resolvConf": "",
        "clusterDNS": [dns],
        "clusterDomain": "cluster.local",
    }


#: So many nodes of the shared cluster, its last ones, are for tests that break nodes: no other pod goes there.
BREAKABLE = 2
BREAKS = "tests/breaks"
SHARED_NODES = 3 + BREAKABLE
#: What the process does that has started the cluster: the nodes and daemons are its children.
OPERATIONS = ("off", "boot", "cut", "join", "kubelet_kill", "kubelet_start", "api_kill", "api_start", "mend")
TOLERATES = [{"key": BREAKS, "operator": "Exists"}]


class Keeper(Kubernetes):
    """The one cluster of a test run: a process of its own has it, for all processes that are connected to its socket.

    It ends with the last of them, however that ends: no process of a test run has to outlive the others.
    """

    def up(self) -> None:
        super().up()
        for name in self.names[-BREAKABLE:]:
            taint = {"key": BREAKS, "value": "1", "effect": "NoSchedule"}
            self.apply({"kind": "Node", "metadata": {"name": name}, "spec": {"taints": [taint]}})

    def mend(self) -> None:
        """What a test has left broken."""
        if "kube-apiserver" not in self._daemons:
            self.api_start()
        for name in self.names:
            if not self.node(name).on:
                self.boot(name)
                continue
            self.join(name)
            if f"kubelet-{name}" not in self._daemons:
                self.kubelet_start(name)
            self.apply({"kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": None}})
        self.wait(lambda: all(map(self.ready, self.names)), "all nodes are ready")

    def _state(self) -> Object:
        return {"place": str(self.place), "nodes": len(self.names), "inits": [node.init for node in self.net]}

    def serve(self, listener: socket.socket, first: socket.socket) -> socket.socket:
        """Answer each line of each process, until the last has gone; its connection, to close when all has ended."""
        files = {first: first.makefile("rw")}
        while True:
            for ready in select.select([listener, *files], (), ())[0]:
                if ready is listener:
                    new = listener.accept()[0]
                    files[new] = new.makefile("rw")
                    continue
                line = ""
                with suppress(OSError):  # killed
                    line = files[ready].readline()
                if line:
                    files[ready].write(json.dumps(self._answer(json.loads(line))) + "\n")
                    with suppress(OSError):
                        files[ready].flush()
                else:
                    del files[ready]
                    if not files:
                        return ready
                    ready.close()

    def _answer(self, words: list[str]) -> Object:
        try:
            if words:
                assert words[0] in OPERATIONS, words
                getattr(self, words[0])(*words[1:])
        except Exception as error:
            return {"error": repr(error)}
        return self._state()


class Shared(Kubernetes):
    """The cluster of a Keeper, as one of its processes sees it."""

    def __init__(self, keeper: socket.socket) -> None:
        self._keeper, self._file = keeper, keeper.makefile("rw")
        state = self._tell()
        self._describe(Path(state["place"]), state["nodes"])
        self._attach(state)
        for node in self.net:
            node.number_output_from(os.getpid() * 100_000)

    def _tell(self, *words: str) -> Object:
        self._file.write(json.dumps(words) + "\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise ConnectionResetError("the keeper of the cluster has ended")
        answer: Object = json.loads(line)
        assert "error" not in answer, f"{words}: {answer['error']}"
        return answer

    def _attach(self, state: Object) -> None:
        for node, init in zip(self.net, state["inits"], strict=True):
            node.attach(init)

    def up(self) -> None:
        """It is up."""

    def down(self) -> None:
        """When this is the last process, the cluster has ended upon return."""
        self.net.close()
        self._keeper.shutdown(socket.SHUT_WR)
        self._file.read()
        self._file.close()
        self._keeper.close()

    @property
    def breakable(self) -> list[str]:
        """The nodes that a test may break that has them for itself."""
        return self.names[-BREAKABLE:]

    @property
    def ordinary(self) -> list[str]:
        return self.names[:-BREAKABLE]

    @contextmanager
    def used(self, *, breaks: bool = False, alone: bool = False) -> Iterator[None]:
        """For one test, beside those of other processes. `breaks`: it has the breakable nodes; `alone`: all of it."""
        with ExitStack() as stack:

            def lock(name: str, how: int = fcntl.LOCK_EX) -> IO[str]:
                file = stack.enter_context((self.place / name).open("w"))
                fcntl.flock(file, how)
                return file

            if breaks:
                lock("breaks.lock")
            # Who waits to be alone lets no other begin before.
            turn = lock("turn.lock")
            lock("all.lock", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            turn.close()
            self._attach(self._tell())
            try:
                yield
            finally:
                if breaks or alone:
                    self._attach(self._tell("mend"))
                while self.spaces:  # a test may have deleted its own
                    self._ask("DELETE", _path("namespace", name=self.spaces.pop()))
                self._hang_up()

    @contextmanager
    def once(self, name: str) -> Iterator[bool]:
        """Whether this is to be done: it is done once in the cluster, and others wait until it is."""
        with (self.place / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            done = self.place / f"{name}.done"
            yield not done.exists()
            done.touch()

    def load_archive(self, file: Path, on: Sequence[str] = ()) -> None:
        super().load_archive(file, on or self.ordinary)

    def off(self, name: str) -> None:
        self._attach(self._tell("off", name))

    def boot(self, name: str) -> None:
        self._attach(self._tell("boot", name))

    def cut(self, name: str) -> None:
        self._tell("cut", name)

    def join(self, name: str) -> None:
        self._tell("join", name)

    def kubelet_kill(self, name: str) -> None:
        self._tell("kubelet_kill", name)

    def kubelet_start(self, name: str) -> None:
        self._tell("kubelet_start", name)

    def api_kill(self) -> None:
        self._tell("api_kill")

    def api_start(self) -> None:
        self._tell("api_start")


def shared(where: Path) -> Shared:
    """The cluster of all processes that name this directory: the first of them has it started."""
    path = where / "kubernetes.sock"
    with (where / "kubernetes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keeper = socket.socket(socket.AF_UNIX)
        try:
            keeper.connect(str(path))
            return Shared(keeper)
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            keeper.close()  # there is none, or it is about to end
        ours, its = socket.socketpair()
        words = [sys.executable, __file__, "--keep", str(path)]
        with (where / "kubernetes.err").open("w") as err, its:
            # The first connection is there before the cluster is: it ends also where this process is killed meanwhile.
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            subprocess.run(
                ["setsid", "--fork", *words], stdin=its.fileno(), stdout=err, stderr=err, env=env, check=True
            )
        try:
            return Shared(ours)
        except ConnectionResetError:
            said = (where / "kubernetes.err").read_text()
            raise AssertionError(f"the cluster does not start:\n{said}") from None


def keep(path: Path) -> None:
    """The keeper's process. Its standard input is the connection of who has started it."""
    first = socket.socket(fileno=os.dup(0))
    with Keeper(SHARED_NODES) as cluster:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(64)
            last = cluster.serve(listener, first)
            path.unlink()
    last.close()


def _remove_what_was_killed() -> None:
    for lock in Path("/tmp").glob(f"{PREFIX}*/held"):
        with suppress(OSError), lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_cgroups(lock.parent.name)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _remove_cgroups(start: str) -> None:
    """Those whose name begins so; they are empty a moment after their last process has ended."""
    for _ in range(50):
        left = sorted(CGROUPS.glob(f"*/{start}*"))
        for top in left:
            for path in sorted(top.rglob("*/"), reverse=True):
                with suppress(OSError):
                    path.rmdir()
            with suppress(OSError):
                top.rmdir()
        if not left:
            return
        time.sleep(0.1)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--keep"]:
        keep(Path(words[1]))
        return
    nodes = int(words[words.index("-n") + 1]) if "-n" in words else 2
    if why := missing():
        raise SystemExit(why)
    began = time.monotonic()
    with Kubernetes(nodes) as cluster:
        print(f"up after {time.monotonic() - began:.1f} s; {cluster.place}; `exit` ends the cluster.", flush=True)
        cluster.shell()


if __name__ == "__main__":
    main()

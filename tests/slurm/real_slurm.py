"""A real Slurm on one machine: slurmctld, munge and a slurmd for each node, in the namespaces of netns.py.

The nodes are called n1, n2, … and the login node, which has slurmctld, `ctl`. They see the same files (a shared home)
but for /run and /var/tmp, which are each node's own. Nothing has a name or a port in the machine's own network, so that
several clusters run side by side; where the test is killed, the kernel takes everything back.

`python tests/slurm/real_slurm.py [-n 3] [--db] [--cgroup]` brings one up, and opens a shell on its login node.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from netns import CGROUPS, SYSTEM_PATH, Net, Node, Started
from netns import missing as missing_nodes

CTL, PREFIX = "ctl", "hf-slurm-"
#: An ordinary user, known on all nodes.
USER, USER_NAME = 1500, "ada"
#: A limit for what always happens: it is long since the machine may be busy.
WAIT_S = 90.0
DAEMONS = ("slurmd", "slurmctld", "slurmscriptd", "munged", "slurmdbd", "mariadbd")
HOOKS = ("prolog", "epilog", "health")
HOLDFAST = f"{Path(sys.executable).parent}/holdfast"
#: Where each node has files that its neighbours do not see.
OWN_PLACES = (Path("/run"), Path("/var/tmp"))
CGROUP_LOCK = Path("/tmp/holdfast-slurm-cgroups.lock")
#: What a job's Python needs to run holdfast and the tests' trainers.
NEEDED = tuple({Path(sys.base_prefix), Path(sys.prefix), Path(__file__).resolve().parent.parent.parent})
#: What a trainer prints all the time: it would hide what holdfast has printed.
_STEP = re.compile(r"\[\w+-\d+\] step \d+$")
Fields = dict[str, str]


@functools.cache
def missing(db: bool = False) -> str:
    """Why there can be no Slurm here, in words; empty: there can."""
    for tool in ("slurmctld", "slurmd", "munged", *(("slurmdbd", "mariadbd") if db else ())):
        if shutil.which(tool, path=SYSTEM_PATH) is None:
            return f"there is no {tool} here (apt-get install {packages(db)})"
    return missing_nodes()


def packages(db: bool) -> str:
    return "slurm-wlm munge" + (" slurmdbd slurm-wlm-mysql-plugin mariadb-server" if db else "")


def _closed(path: Path) -> Path | None:
    """The topmost parent that only its owner may enter."""
    return next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o005), None)


def fields(line: str) -> Fields:
    """`A=1 B=two words C=` as `scontrol -o` prints it."""
    return dict(re.findall(r"(?:^|\s)([A-Za-z][\w/:.-]*)=(.*?)(?=\s+[A-Za-z][\w/:.-]*=|\s*$)", line))


class Slurm:
    """One cluster. `with Slurm(3) as slurm: job = slurm.sbatch("#!/bin/sh\\nhostname\\n")`."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        cpus: int = 4,
        gpus: int = 0,
        kill_wait_s: int = 2,
        db: bool = False,
        cgroup: bool = False,
        flat: bool = False,
        conf: Mapping[str, str | None] | None = None,
        main: str = "",
        lines: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        token: str = "",
    ) -> None:
        """`conf`: settings of slurm.conf by name, None leaves one out; `lines`: further lines of it; `main`: further
        words on the line of the partition main; `files`: what lies beside slurm.conf, by name (topology.conf).

        db: slurmdbd with MariaDB, for sacct (several seconds). cgroup: proctrack/cgroup and memory limits (one such
        cluster on a machine at a time: it waits for its turn). flat: all of it as the user `ada` on one node.
        """
        _remove_what_was_killed()
        self.place = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        self.place.chmod(0o755)
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.cpus, self.gpus, self.kill_wait_s = cpus, gpus, kill_wait_s
        self.db, self.cgroup, self.flat = db, cgroup, flat
        self.conf, self.main, self.lines = dict(conf or {}), main, list(lines)
        self.files = dict(files or {})
        self.user = USER if flat else 0
        #: HOME on all nodes, and the directory in which jobs are submitted.
        self.home = self.place / "home"
        self.token = token
        self.net = self._net()
        self.jobs: list[int] = []
        #: Whether a test has broken something of the cluster, so that no other test may have it.
        self.spent = False
        self._numbers = {name: number for number, name in enumerate([*([] if flat else self.names), CTL], 1)}
        self._daemons: dict[str, Started] = {}
        #: The files that each node alone has after its start.
        self._files: list[tuple[Node, set[Path]]] = []
        self._stack = ExitStack()

    def _net(self) -> Net:
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "PET_", "TORCHELASTIC_", "XDG_", "SLURM", "SBATCH"))
            and name not in ("PYTHONDONTWRITEBYTECODE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        }
        env["PATH"] = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        if self.token:
            env[self.token] = "1"
        hosts = [CTL] if self.flat else [*self.names, CTL]
        return Net(self.place, len(hosts), env=env, hosts=hosts)

    # ------------------------------------------------------------------------------------------------- up and down

    def __enter__(self) -> Slurm:
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
        if self.cgroup:
            self._stack.enter_context(_alone())
        for name in ("etc", "run", "log", "spool", "state", "munge", "home"):
            (self.place / name).mkdir()
        for name in HOOKS:
            self._write_hook(name, "exit 0")
        (self.place / "etc" / "passwd").write_text(
            Path("/etc/passwd").read_text() + f"{USER_NAME}:x:{USER}:{USER}::{self.home}:/bin/sh\n"
        )
        (self.place / "munge" / "key").write_bytes(os.urandom(128))
        (self.place / "munge" / "key").chmod(0o400)
        self._write_conf()
        if self.flat:
            for path in [self.place, *self.place.rglob("*")]:
                os.chown(path, self.user, self.user)
        self.home.chmod(0o777)
        self._stack.enter_context(self.net)
        for node in self.net:
            node.env = {"HOME": str(self.home), "SLURM_CONF": str(self._conf_file), "HOLDFAST_HOME": str(self.state)}
            self._furnish(node)
        self._start_munge()
        if self.db:
            self._start_db()
        self.ctld_start()
        for name in self.names:
            self.startd(name)
        self.wait(lambda: self.idle() == set(self.names), "all nodes are idle")
        self._files = [
            (node, {file for place in OWN_PLACES for file in node.inside(place).iterdir()}) for node in self.net
        ]

    def down(self) -> None:
        """Everything ends at once, and leaves no file."""
        self._stack.close()
        if self.cgroup:
            _remove_cgroups(self.names)
        shutil.rmtree(self.place, ignore_errors=True)

    def _furnish(self, node: Node) -> None:
        """What a node has that its neighbours do not; and users and Python that all of them know."""
        script = f"""
        mount -t tmpfs -o mode=1777 tmpfs /var/tmp
        mount --bind {self.place}/etc/passwd /etc/passwd
        mount --make-rprivate /
        """
        # Where only root may enter a parent of this Python or of these sources, others find those alone in there.
        hidden = {path: top for path in NEEDED if (top := _closed(path))}
        for number, path in enumerate(hidden):
            script += f"mkdir -p /run/needed/{number} && mount --bind {path} /run/needed/{number}\n"
        for top in set(hidden.values()):
            script += f"mount -t tmpfs -o mode=755 tmpfs {top}\n"
        for number, path in enumerate(hidden):
            script += f"mkdir -p {path} && mount --move /run/needed/{number} {path}\n"
        node("sh", "-ec", script)

    # ---------------------------------------------------------------------------------------------- configuration

    @property
    def _conf_file(self) -> Path:
        return self.place / "etc" / "slurm.conf"

    @property
    def state(self) -> Path:
        """HOLDFAST_HOME of all jobs: on the shared home."""
        return self.home / "state"

    def _write_conf(self) -> None:
        log, run, etc = (self.place / name for name in ("log", "run", "etc"))
        settings: dict[str, str | None] = {
            "ClusterName": "sandbox",
            "SlurmctldHost": "ctl(127.0.0.1)" if self.flat else f"ctl({self.net[len(self.names) + 1].address})",
            "SlurmUser": USER_NAME if self.flat else "root",
            "SlurmdUser": USER_NAME if self.flat else "root",
            # Slurm delays every requeued job by cred_expire, of which 5 s is the least.
            "AuthInfo": f"socket={run}/munge.sock,cred_expire=5",
            "SlurmctldPidFile": f"{run}/slurmctld.pid",
            "SlurmdPidFile": f"{run}/slurmd.%n.pid",
            "StateSaveLocation": f"{self.place}/state",
            "SlurmdSpoolDir": f"{self.place}/spool/%n",
            "SlurmctldLogFile": f"{log}/slurmctld.log",
            "SlurmdLogFile": f"{log}/slurmd.%n.log",
            "SlurmctldDebug": "verbose",
            "SlurmdDebug": "verbose",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "ProctrackType": "proctrack/cgroup" if self.cgroup else "proctrack/linuxproc",
            "TaskPlugin": "task/cgroup" if self.cgroup else "task/none",
            "JobAcctGatherType": "jobacct_gather/cgroup" if self.cgroup else "jobacct_gather/linux",
            "JobAcctGatherFrequency": "5",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "DefMemPerCPU": "64",
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=2,nohold_on_prolog_fail",
            "SlurmctldTimeout": "30",
            "SlurmdTimeout": "3",
            "MessageTimeout": "5",
            "TCPTimeout": "1",
            "BatchStartTimeout": "10",
            "KillWait": str(self.kill_wait_s),
            "MinJobAge": "600",
            "ReturnToService": "1",
            "JobRequeue": "1",
            "CompleteWait": "0",
            "UnkillableStepTimeout": "20",
            "HealthCheckProgram": f"{etc}/health.sh",
            "HealthCheckInterval": "5",
            "HealthCheckNodeState": "ANY",
            "Prolog": f"{etc}/prolog.sh",
            "Epilog": f"{etc}/epilog.sh",
            "PrologFlags": "Alloc",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": f"{log}/jobcomp.txt",
            "AccountingStorageType": f"accounting_storage/{'slurmdbd' if self.db else 'none'}",
            **({"AccountingStorageHost": CTL, "AccountingStoragePass": f"{run}/munge.sock"} if self.db else {}),
            **({"GresTypes": "gpu"} if self.gpus else {}),
            **self.conf,
        }
        nodes = f"n[1-{len(self.names)}]"
        gres = f" Gres=gpu:{self.gpus}" if self.gpus else ""
        ports = f" NodeHostname=ctl NodeAddr=127.0.0.1 Port=[7001-{7000 + len(self.names)}]" if self.flat else ""
        text = [f"{name}={value}" for name, value in settings.items() if value is not None]
        text.append(f"NodeName={nodes} CPUs={self.cpus} RealMemory=4096 State=UNKNOWN{gres}{ports}")
        text.append(f"PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP {self.main}")
        self._conf_file.write_text("\n".join([*text, *self.lines, ""]))
        for name, content in self.files.items():
            (etc / name).write_text(content)
        if self.gpus:
            for number in range(self.gpus):  # /dev/null under a GPU's name
                os.mknod(self.place / "run" / f"nvidia{number}", 0o020666, os.makedev(1, 3))
            (etc / "gres.conf").write_text(f"Name=gpu File={self.place}/run/nvidia[0-{self.gpus - 1}]\n")
        if self.cgroup:
            (etc / "cgroup.conf").write_text(
                f"CgroupPlugin=autodetect\nCgroupMountpoint={CGROUPS}\nCgroupAutomount=no\nConstrainCores=no\n"
                "ConstrainRAMSpace=yes\nConstrainSwapSpace=no\nAllowedRAMSpace=100\n"
            )

    def hook(self, name: str, script: str) -> None:
        """What `prolog`, `epilog` or `health` does from now on: the lines of a shell script."""
        self.spent = True  # Slurm may run it once more after the test
        self._write_hook(name, script)

    def _write_hook(self, name: str, script: str) -> None:
        path = self.place / "etc" / f"{name}.sh"
        new = path.with_suffix(".new")
        new.write_text(f"#!/bin/sh\n{script}\n")
        new.chmod(0o755)
        new.rename(path)

    # --------------------------------------------------------------------------------------------------- daemons

    def _daemon(self, node: Node, *words: str | Path) -> Started:
        """It has an environment of its own, as a system's service has."""
        bare = ("env", "-i", f"PATH={SYSTEM_PATH}", f"SLURM_CONF={self._conf_file}")
        return node.start(*bare, *words, user=self.user)

    def _start_munge(self) -> None:
        at = self.place / "munge"
        self._daemons["munged"] = self._daemon(
            self.net[self._numbers[CTL]],
            *("munged", "-F", "--force", f"--socket={self.place}/run/munge.sock", f"--key-file={at}/key"),
            *(f"--pid-file={at}/pid", f"--log-file={self.place}/log/munged.log", f"--seed-file={at}/seed"),
        )
        munge = ("munge", "-S", self.place / "run" / "munge.sock", "-n")
        self.wait(lambda: self.start(*munge).outside.wait() == 0, "munge answers")

    def _start_db(self) -> None:
        db, log, run = self.place / "db", self.place / "log", self.place / "run"
        db.mkdir(mode=0o700)
        ctl = self.node(CTL)
        own = ("--no-defaults", "--user=root", f"--datadir={db}")
        ctl("mariadb-install-db", *own, "--auth-root-authentication-method=normal", "--skip-test-db", timeout_s=120)
        self._daemons["mariadbd"] = self._daemon(
            ctl,
            *("mariadbd", *own, f"--socket={run}/db.sock", "--bind-address=127.0.0.1", f"--pid-file={run}/db.pid"),
            *("--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"),
            *("--innodb-lock-wait-timeout=900", f"--log-error={log}/mariadbd.log"),
        )
        client = ("--no-defaults", "-S", run / "db.sock", "-u", "root")
        self.wait(lambda: ctl.start("mariadb-admin", *client, "ping").outside.wait() == 0, "MariaDB answers")
        grants = "".join(
            f"create user 'slurm'@'{host}' identified by 'x'; grant all on slurm_acct_db.* to 'slurm'@'{host}';"
            for host in ("%", "localhost")
        )
        ctl("mariadb", *client, "-e", f"create database slurm_acct_db; {grants}")
        conf = self.place / "etc" / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={run}/munge.sock\nDbdHost={CTL}\nSlurmUser=root\n"
            f"LogFile={log}/slurmdbd.log\nPidFile={run}/slurmdbd.pid\nStorageType=accounting_storage/mysql\n"
            "StorageHost=127.0.0.1\nStorageUser=slurm\nStoragePass=x\nStorageLoc=slurm_acct_db\n"
        )
        conf.chmod(0o600)
        self._daemons["slurmdbd"] = self._daemon(ctl, "slurmdbd", "-D")
        clusters = ("sacctmgr", "-n", "-i")
        self.wait(lambda: self.start(*clusters, "list", "cluster").outside.wait() == 0, "slurmdbd answers")
        self(*clusters, "add", "cluster", "sandbox")

    def ctld_start(self) -> None:
        self._daemons["slurmctld"] = self._daemon(self.node(CTL), "slurmctld", "-D")
        self.wait(lambda: self.start("scontrol", "ping").outside.wait() == 0, "slurmctld answers")

    def ctld_kill(self) -> None:
        """SIGKILL, once it has saved what it knows: it does so every few seconds, and would start young jobs again."""
        at = time.time()
        changed = [self.start("scontrol", "update", f"jobid={job}", "admincomment=seen").wait() for job in self.jobs]
        if 0 in changed:
            saved = self.place / "state" / "job_state"
            self.wait(lambda: saved.exists() and saved.stat().st_mtime > at, "slurmctld has saved its jobs")
        self.spent = True
        self._kill("slurmctld")

    def startd(self, name: str) -> None:
        (self.place / "spool" / name).mkdir(exist_ok=True)
        if self.flat:
            os.chown(self.place / "spool" / name, self.user, self.user)
        self._daemons[name] = self._daemon(self.node(name), "slurmd", "-D", "-N", name)

    def killd(self, name: str) -> None:
        """SIGKILL to the node's slurmd alone: its jobs live on."""
        self.spent = True
        self._kill(name)

    def _kill(self, daemon: str) -> None:
        started = self._daemons.pop(daemon)
        os.kill(started.pid, signal.SIGKILL)
        started.wait()

    # ----------------------------------------------------------------------------------------------------- nodes

    def node(self, name: str) -> Node:
        return self.net[self._numbers[CTL if self.flat else name]]

    def off(self, name: str) -> None:
        """Power cut: the link is down, then everything on the node is killed."""
        self.spent = True
        self.node(name).power_cut()

    def boot(self, name: str) -> None:
        """Power on; its slurmd registers anew."""
        node = self.node(name)
        node.boot()
        self._furnish(node)
        self.startd(name)

    def cut(self, name: str) -> None:
        """The node's link is down."""
        self.spent = True
        self.node(name).link_down()

    def join(self, name: str) -> None:
        """The node's link is up again."""
        self.node(name).link_up()

    def idle(self) -> set[str]:
        """The nodes that Slurm has nothing on and nothing against."""
        done = self.start("sinfo", "-h", "-N", "-t", "idle", "-o", "%N %t")
        done.wait()
        return {name for name, state in map(str.split, done.out.splitlines()) if state == "idle"}

    # --------------------------------------------------------------------------------------------------- clients

    def start(
        self, *words: str | Path, on: str = CTL, user: int | None = None, env: Mapping[str, str] | None = None
    ) -> Started:
        """A command on the login node, or on another."""
        return self.node(on).start(*words, user=self.user if user is None else user, env=env, chdir=self.home)

    def shell(self) -> None:
        """A shell on the login node, for a person."""
        self.node(CTL).shell(self.home)

    def __call__(
        self,
        *words: str | Path,
        on: str = CTL,
        user: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = WAIT_S,
    ) -> str:
        """A command to its end, which must be a good one; what it printed."""
        started = self.start(*words, on=on, user=user, env=env)
        status = started.wait(timeout_s)
        assert status == 0, f"{on}: {' '.join(map(str, words))} ended with {status}\n{started.err}\n{self.told()}"
        return started.out

    def holdfast(self, *words: str | Path, **how: Any) -> Started:
        """`holdfast …` on the login node, or with on="n2" on another."""
        return self.start(sys.executable, "-m", "holdfast", *words, **how)

    def sbatch(
        self, script: str, *options: str | Path, user: int | None = None, env: Mapping[str, str] | None = None
    ) -> int:
        """The job's number. The script is bash without its first line; it is submitted from `home`."""
        path = self.home / f"job-{len(self.jobs) + 1}.sh"
        path.write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        job = int(self("sbatch", "--parsable", *options, path, user=user, env=env).split(";")[0])
        self.jobs.append(job)
        return job

    # ------------------------------------------------------------------------------------------- what Slurm says

    def job(self, job: int | str) -> Fields:
        """`scontrol -o show job`; of an array the line of its first task."""
        return fields(self("scontrol", "-o", "show", "job", str(job)).splitlines()[0])

    def record(self, name: str) -> Fields:
        """`scontrol -o show node`."""
        return fields(self("scontrol", "-o", "show", "node", name).splitlines()[0])

    def sacct(self, job: int, *columns: str) -> list[Fields]:
        """A row for each run of the job and of its steps, the oldest first. It takes `db`."""
        names = columns or ("JobID", "State", "ExitCode", "DerivedExitCode", "Comment", "NodeList")
        rows = self("sacct", "-D", "-n", "-P", "-j", str(job), "-o", ",".join(names)).splitlines()
        return [dict(zip(names, row.split("|"), strict=True)) for row in rows]

    def output(self, job: int | str) -> str:
        """What the job's batch script printed, to both streams; empty before it has begun."""
        path = self.home / f"slurm-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, what: Callable[[], object], why: str, timeout_s: float = WAIT_S) -> None:
        """Until this holds; an AssertionError with what Slurm and the jobs said if it does not."""
        until = time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            if what():
                return
            now = time.monotonic()
            if now > until:
                raise AssertionError(f"not within {timeout_s:g} s: {why}\n{self.told()}")
            # Most looks start processes: a look that takes long must not take the core that the job needs.
            time.sleep(min(0.5, max(0.05, 4 * (now - began))))

    def wait_state(self, job: int | str, *states: str, timeout_s: float = WAIT_S) -> Fields:
        """Until the job is in one of these states; its record then."""
        record: Fields = {}

        def there() -> bool:
            record.update(self.job(job))
            return record["JobState"] in states

        self.wait(there, f"job {job} is {' or '.join(states)}", timeout_s)
        return record

    def ended(self, job: int | str, timeout_s: float = WAIT_S) -> Fields:
        """Until the job is over and its nodes are free; its record."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE")
        self.wait_state(job, *over, timeout_s=timeout_s)
        self.wait(lambda: not self("squeue", "-h", "-j", str(job)).strip(), f"job {job} has left the queue", timeout_s)
        return self.job(job)

    # --------------------------------------------------------------------------------------------- what is left

    def left(self, word: str = "") -> list[str]:
        """Processes on the nodes, but for Slurm's own services: `n2: 1234 python train.py`; those with this word."""
        names = [CTL] if self.flat else self.names
        found = []
        for node, process in self.net.processes_of([self.node(name) for name in names]):
            with suppress(psutil.NoSuchProcess):
                if process.name() not in DAEMONS:
                    found.append(f"{node.host}: {process.pid} {' '.join(process.cmdline())}")
        return [line for line in found if word in line]

    def end_jobs(self) -> None:
        """Cancel all jobs that still wait or run; Slurm's hooks do nothing more."""
        for name in HOOKS:
            self._write_hook(name, "exit 0")
        if "slurmctld" in self._daemons:
            for user in ("root", USER_NAME):
                self.start("scancel", f"--user={user}").wait()
            self.wait(lambda: not self("squeue", "-h").strip(), "the queue is empty")

    def nothing_left(self) -> None:
        """No process of any job lives on any node, once all of them are over."""
        self.wait(lambda: not self.left(), "no process outlives its job")

    def reusable(self) -> bool:
        """Make the cluster as it was at its start, once its jobs are over; False: that is not possible."""
        if self.spent:
            return False
        self.jobs.clear()
        for file in self.home.iterdir():
            _remove(file)
        for node, old in self._files:
            for place in OWN_PLACES:
                for file in node.inside(place).iterdir():
                    if file not in old:
                        _remove(file)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            states = dict(map(str.split, self("sinfo", "-h", "-N", "-o", "%N %t").splitlines()))
            if set(states.values()) == {"idle"}:
                return True
            if not set(states.values()) <= {"idle", "comp", "mix", "alloc"}:
                return False  # drained, or down
            time.sleep(0.1)
        return False

    def told(self) -> str:
        """What everybody wrote last: for the message of a failed test."""
        parts = []
        logs = (self.place / "log").glob("*.log")
        for path in [*sorted(self.home.glob("*.out")), *sorted(self.home.glob("*.err")), *sorted(logs)]:
            lines = [line for line in path.read_text(errors="replace").splitlines() if not _STEP.match(line)]
            parts += [f"--- {path.name}", *lines[-40 if path.parent == self.home else -12 :]]
        if "slurmctld" in self._daemons:
            for words in (("squeue", "-o", "%i %T %r %N"), ("sinfo", "-N", "-o", "%N %T %E")):
                asked = self.start(*words)
                with suppress(AssertionError):
                    asked.wait(20)
                parts += [f"--- {words[0]}", *asked.out.splitlines()]
        return "\n".join([*parts, "--- processes on the nodes", *self.left()])


SlurmOf = Callable[..., Slurm]


class Pool:
    """The clusters of this process. A test gets one that another test has left as it was, or else a new one."""

    def __init__(self) -> None:
        self._free: dict[str, list[Slurm]] = {}
        self._words: dict[Slurm, str] = {}

    def take(self, nodes: int, token: str, **how: Any) -> Slurm:
        words = repr((nodes, sorted(how.items())))
        if free := self._free.get(words):
            return free.pop()
        slurm = Slurm(nodes, token=token, **how)
        slurm.__enter__()
        self._words[slurm] = words
        return slurm

    def give_back(self, slurm: Slurm, *, whole: bool) -> None:
        """After a test. `whole`: it has not failed, and its jobs are over."""
        words = self._words[slurm]
        # A cluster with control groups keeps those of other processes waiting.
        if whole and not slurm.cgroup and slurm.reusable():
            self._free.setdefault(words, []).append(slurm)
        else:
            del self._words[slurm]
            slurm.down()

    def close(self) -> None:
        for slurm in self._words:
            slurm.down()


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def _remove_what_was_killed() -> None:
    """The files of a cluster whose test was killed: the kernel has ended all of it, and let go of its lock."""
    for lock in Path("/tmp").glob(f"{PREFIX}*/held"):
        with suppress(OSError), lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


@contextmanager
def _alone() -> Iterator[None]:
    """Slurm names its cgroups after its nodes: two clusters would share them."""
    lock: IO[str]
    with CGROUP_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_cgroups(names: Sequence[str]) -> None:
    for top in [path for name in names for path in CGROUPS.glob(f"*/slurm_{name}")]:
        for path in sorted(top.rglob("*/"), reverse=True):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):
            top.rmdir()


def main() -> None:
    words = sys.argv[1:]
    nodes = int(words[words.index("-n") + 1]) if "-n" in words else 3
    if why := missing("--db" in words):
        raise SystemExit(why)
    with Slurm(nodes, db="--db" in words, cgroup="--cgroup" in words, flat="--flat" in words) as slurm:
        print(f"A shell on the login node; {slurm.place} has etc, log and home; `exit` ends the cluster.", flush=True)
        slurm.shell()


if __name__ == "__main__":
    main()

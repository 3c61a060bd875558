"""A task as the first process of its container, and a runtime of the site's own in the place of ours or around it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest
from containers import PAI, SOMEBODY, Container, ImageOf, copied

OURS = f"{PAI}/holdfast/now"

# ---------------------------------------------------------------------------------------------- as process 1


def inside(process: subprocess.Popen[str]) -> int:
    """The number that the container's first process has outside."""
    [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def test_the_first_process_takes_a_signal_to_the_user_and_lets_the_user_end_in_peace(image_of: ImageOf) -> None:
    text = "trap 'echo saving; echo saved; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    process = image_of("busybox", uid=SOMEBODY).given({"USER_CMD": text}).start(f"{PAI}/run")
    assert process.stdout is not None
    assert process.stdout.readline() == "[task-0] up\n"
    os.kill(inside(process), signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["[task-0] saving", "[task-0] saved"], err
    assert "SIGTERM" in err
    assert process.returncode == 250


def test_orphans_are_reaped_by_the_first_process(image_of: ImageOf) -> None:
    text = "for i in 1 2 3 4; do (sleep 0.1 &) ; done; sleep 1; ps -o stat,comm | grep -c '^Z' ; echo end"
    done = image_of("busybox").run(text)
    assert done.of_worker() == ["0", "end"], done.err


def test_what_a_finished_task_leaves_behind_holds_no_container(image_of: ImageOf) -> None:
    done = image_of("busybox").run("setsid sleep 1000 & (sleep 1000 &) ; echo end")
    assert (done.status, done.of_worker()) == (0, ["end"]), done.err


def test_a_script_has_the_image_s_python_and_never_ours(image_of: ImageOf) -> None:
    script = "cd /dev/shm; echo 'import sys; print(sys.executable)' > s.py"
    text = f"{script}; {OURS}/bin/holdfast run --no-checks s.py 2>&1"
    assert "[worker-0] /usr/bin/python3" in image_of("debian-13").run(text).of_worker()
    said = image_of("debian-11").run(text).of_worker()
    assert said[0].startswith("holdfast: there is no Python on the PATH (/usr/local/sbin:"), said


def test_a_script_starts_cold_under_a_python_with_half_a_library(image_of: ImageOf) -> None:
    """Debian's `python3-minimal`. tests/act/test_warm_other_pythons.py has whole ones, which start warm."""
    text = f"""
        cd /dev/shm
        echo 'print("ran")' > s.py
        {OURS}/bin/holdfast run --no-checks --warm s.py 2>&1
    """
    done = image_of("debian-13", read_only=True, uid=SOMEBODY).run(textwrap.dedent(text))
    note = "holdfast: warm start is off, workers start cold: /usr/bin/python3 is a Python without ctypes"
    assert {note, "[worker-0] ran"} <= set(done.of_worker())


def test_the_same_words_in_each_image(image_of: ImageOf) -> None:
    """A `#!` line of the image's own, quotes, several lines, a parameter: what the image has does not matter."""
    words = "x='a  b'\nprintf '%s|' \"$x\" '<% $parameters.x %>' $PAI_TASK_INDEX; echo"
    for name in ("scratch", "busybox", "musl"):
        done = image_of(name, read_only=True).run("#!/prog 0\n<% $parameters.x %>\n", HOLDFAST_PARAMETER_x="y")
        assert done.of_worker() == ["the image's own program"], done.err
        assert image_of(name).run(words, HOLDFAST_PARAMETER_x="ü").of_worker() == ["a  b|ü|0|"]


# ---------------------------------------------------------------------------------------------- a site's own runtime

#: The runtime of the proposal's demonstration, as it stands there.
RUNTIME_SH = """\
#!/usr/local/bin/bash

TARGET=/usr/local/pai/run

cat > $TARGET << EOF
#!/usr/bin/env python
import tensorflow as tf

sess = tf.Session() # create distributed session here, for demo purpose I only created a local session

$USER_CMD
EOF

chmod +x $TARGET
"""
#: And its user's command.
USER_CMD = """\
from tensorflow.examples.tutorials.mnist import input_data

mnist = input_data.read_data_sets("MNIST_data/", one_hot=True)

x = tf.placeholder(tf.float32, [None, 784])
W = tf.Variable(tf.zeros([784,10]))
b = tf.Variable(tf.zeros([10]))
y = tf.nn.softmax(tf.matmul(x,W) + b)
y_ = tf.placeholder("float", [None,10])
cross_entropy = -tf.reduce_sum(y_*tf.log(y))
train_step = tf.train.GradientDescentOptimizer(0.01).minimize(cross_entropy)
init = tf.initialize_all_variables()
sess.run(init)
for i in range(1000):
  batch_xs, batch_ys = mnist.train.next_batch(100)
  sess.run(train_step, feed_dict={x: batch_xs, y_: batch_ys})
  correct_prediction = tf.equal(tf.argmax(y,1), tf.argmax(y_,1))
  accuracy = tf.reduce_mean(tf.cast(correct_prediction, "float"))
  print i, sess.run(accuracy, feed_dict={x: mnist.test.images, y_: mnist.test.labels})
"""
#: Stands in for the user's package.
TENSORFLOW = """
import sys
class Any(object):
    def __call__(self, *a, **k): return self
    def __getattr__(self, name): return self
    def __iter__(self): return iter((self, self))
    def __neg__(self): return self
    __add__ = __mul__ = lambda self, other: self
    def run(self, *a, **k): return 0.9
sys.modules[__name__] = any = Any()
any.__dict__.update(__path__=[], __spec__=None)
for name in ("examples", "examples.tutorials", "examples.tutorials.mnist"):
    sys.modules[__name__ + "." + name] = any
"""
#: The demonstration's image has Python 2, which no distribution has any more: it prints without brackets.
PYTHON_2 = r"""#!/usr/bin/python3
import re, sys
with open(sys.argv[1]) as file:
    text = re.sub(r"(?m)^( *)print (.*)$", r"\1print(\2)", file.read())
exec(compile(text, sys.argv[1], "exec"))
"""


@pytest.fixture
def site(image_of: ImageOf, tmp_path: Path) -> tuple[Container, Container]:
    """The site's runtime image (bash), and the user's image (tensorflow), with one exchange directory of their own."""
    pai = tmp_path / "pai"
    shutil.copytree(image_of("busybox").pai, pai, symlinks=True)
    bash = copied(image_of("debian-11").root, tmp_path / "bash")
    (bash / "usr/local/bin/bash").symlink_to("/bin/bash")
    (bash / "usr/local/bin/runtime.sh").write_text(RUNTIME_SH)
    (bash / "usr/local/bin/runtime.sh").chmod(0o755)
    tensorflow = copied(image_of("debian-13").root, tmp_path / "tensorflow")
    (tensorflow / "usr/bin/python").unlink(missing_ok=True)
    (tensorflow / "usr/bin/python").write_text(PYTHON_2)
    (tensorflow / "usr/bin/python").chmod(0o755)
    packages = tensorflow / "usr/lib/python3/dist-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "tensorflow.py").write_text(TENSORFLOW)
    return Container(bash, pai, prepares=True), Container(tensorflow, pai)


def test_the_demonstration_of_a_site_s_own_runtime_works_as_written(site: tuple[Container, Container]) -> None:
    runtime, task = site
    done = runtime.given({"USER_CMD": USER_CMD})("/usr/local/bin/runtime.sh")
    assert done.status == 0, done.err
    done = task(f"{PAI}/run")
    assert done.status == 0, done.err
    assert done.out.splitlines()[-1] == "999 0.9"


def test_a_site_s_runtime_wraps_ours(site: tuple[Container, Container]) -> None:
    """The same, and holdfast runs what the site has made of the user's command."""
    runtime, task = site
    wrap = RUNTIME_SH.replace("TARGET=/usr/local/pai/run", "TARGET=/usr/local/pai/site-task")
    lines = ("#!/bin/sh", f"USER_CMD={PAI}/site-task exec {OURS}/run")
    wrap += f"rm {PAI}/run; printf '%s\\n' '{lines[0]}' '{lines[1]}' > {PAI}/run; chmod +x {PAI}/run\n"
    (runtime.root / "usr/local/bin/runtime.sh").write_text(wrap)
    done = runtime.given({"USER_CMD": USER_CMD})("/usr/local/bin/runtime.sh")
    assert done.status == 0, done.err
    done = task(f"{PAI}/run")
    assert done.status == 0, done.err
    assert done.of_worker()[-1] == "999 0.9"
    assert "SUCCEEDED" in done.err
    (task.root / "usr/lib/python3/dist-packages/tensorflow.py").unlink()
    done = task(f"{PAI}/run")
    assert done.status != 0
    assert "ModuleNotFound" in done.err

"""Programs that look at what a fresh Python process has. Run cold and warm, each must see the same."""

# Programs are data, one to a line where that reads better:
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    """Files, and the words that run them, as they are typed behind `python`."""

    files: dict[str, str]
    words: tuple[str, ...] = ("job.py",)
    #: Modules without which there is nothing to compare.
    needs: tuple[str, ...] = field(default=())


def program_of(text: str, *args: str, needs: tuple[str, ...] = (), **more: str) -> Program:
    return Program(
        {"job.py": text, **{name.replace("_of_", "/") + ".py": body for name, body in more.items()}},
        ("job.py", *args),
        needs,
    )


PROGRAMS: dict[str, Program] = {
    "arguments": program_of("import sys; print(sys.argv, sys.orig_argv, sys.executable)", "-x", "--warm", "a b", ""),
    "main module": program_of(
        """
        '''What it is for.'''
        import sys
        here = sys.modules["__main__"]
        print(__name__, here.__dict__ is globals(), __file__, __spec__, __package__, __doc__, __cached__)
        print(type(__loader__).__name__, __loader__.path, __loader__.name, __annotations__, __builtins__)
        print(sorted(globals()))
        """
    ),
    "guard": program_of("import json\nif __name__ == '__main__':\n    print('ran')\nelse:\n    print('imported')\n"),
    "search path": program_of(
        "import sys; print(sys.path); print([type(f).__name__ for f in sys.path_hooks], len(sys.meta_path))"
    ),
    "modules of its own": program_of(
        "import helper, json\nfrom pack import inner\nprint(helper.__file__, inner.up(), helper.json is json)",
        helper="import json, decimal\nprint('helper', __name__)",
        pack_of___init__="import argparse",
        pack_of_inner="from . import other\ndef up(): return other.X, __package__",
        pack_of_other="import csv\nX = 3",
    ),
    "a module as main, relative imports": Program(
        {
            "pack/__init__.py": "import json\nprint('package', __name__)",
            "pack/tool.py": "import sys, json\nfrom . import other\nfrom .other import X\n"
            "print(__name__, __package__, __spec__.name, X, sys.argv[1:], sys.path[0], __file__)\nraise KeyError('end')",
            "pack/other.py": "import csv\nX = 3\nprint(__name__)",
        },
        ("-m", "pack.tool", "--a", "b"),
    ),
    "a package as main": Program(
        {
            "pack/__init__.py": "",
            "pack/__main__.py": "import sys\nfrom . import y\nprint(sys.argv[0], __name__, __package__, y.Y)",
            "pack/y.py": "Y = 1",
        },
        ("-m", "pack"),
    ),
    "a directory as script": Program(
        {
            "app/__main__.py": "import sys, side\nprint(sys.argv, sys.path[0], __name__, __package__, __spec__.name, side.S)",
            "app/side.py": "S = 5",
        },
        ("app", "x"),
    ),
    "an installed module as main": Program(
        {"job.py": "print('traced')\n"}, ("-m", "trace", "--count", "--summary", "-C", "cover", "job.py")
    ),
    "coverage": Program(
        {"job.py": "import json\ndef never():\n    return 1\nprint(json.dumps(1))\n"},
        ("-m", "coverage", "run", "--data-file=cov", "job.py"),
        ("coverage",),
    ),
    "profiled": Program(
        {"job.py": "import sys\nprint(sys.argv, __name__, __file__)\nsys.exit(4)"}, ("-m", "runpy", "job.py")
    ),
    "a class of main, pickled": program_of(
        """
        import pickle, dataclasses, enum
        @dataclasses.dataclass
        class Point:
            x: int
        class Colour(enum.Enum):
            RED = 1
        data = pickle.dumps((Point(3), Colour.RED))
        print(pickle.loads(data), b"__main__" in data, Point.__module__, pickle.loads(data)[1] is Colour.RED)
        """
    ),
    "multiprocessing, spawned": program_of(
        """
        import multiprocessing as mp, os
        class Thing:
            def __init__(self, n): self.n = n
        def work(thing):
            return thing.n * 2, __name__, os.environ["RANK"], type(thing).__module__
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(2) as pool:
                print(pool.map(work, [Thing(1), Thing(2)]))
            print(mp.current_process().name, mp.parent_process(), len(mp.current_process().authkey))
        """
    ),
    "multiprocessing, forked": program_of(
        """
        import multiprocessing as mp
        seen = []
        def work(queue):
            seen.append(1); queue.put((len(seen), mp.current_process().name, mp.parent_process().name))
        if __name__ == "__main__":
            ctx = mp.get_context("fork"); queue = ctx.Queue(); p = ctx.Process(target=work, args=(queue,)); p.start()
            print(queue.get(), p.join(), p.exitcode, seen)
        """
    ),
    "multiprocessing, by a server": program_of(
        """
        import multiprocessing as mp
        def work(n): return n + 1, __name__
        if __name__ == "__main__":
            with mp.get_context("forkserver").Pool(1) as pool:
                print(pool.map(work, [1]))
        """
    ),
    "a pool of futures": program_of(
        """
        from concurrent.futures import ProcessPoolExecutor
        def work(n): return n * n
        if __name__ == "__main__":
            with ProcessPoolExecutor(2) as pool: print(list(pool.map(work, range(4))))
        """
    ),
    "signals": program_of(
        """
        import signal, threading
        print([(n, str(signal.getsignal(n))) for n in sorted(signal.valid_signals())
               if n < 32 and signal.getsignal(n) is not signal.default_int_handler])
        print(signal.getsignal(2) is signal.default_int_handler, signal.pthread_sigmask(0, ()), signal.set_wakeup_fd(-1))
        print(signal.getitimer(0), threading.current_thread() is threading.main_thread())
        """
    ),
    "interrupted": program_of("import os, signal\ntry:\n    os.kill(os.getpid(), 2)\nfinally:\n    print('cleaned')"),
    "an alarm": program_of(
        "import signal, time\nsignal.signal(14, lambda *a: print('rang'))\nsignal.setitimer(0, 0.05)\nsignal.sigwait([14]) if 0 else signal.pause()"
    ),
    "ended by SIGTERM": program_of(
        "import os, time\nprint('now', flush=True)\nos.kill(os.getpid(), 15)\ntime.sleep(9)"
    ),
    "a handler of its own": program_of(
        "import os, signal, sys\nsignal.signal(15, lambda n, f: sys.exit(9))\nos.kill(os.getpid(), 15)\nimport time; time.sleep(9)"
    ),
    "working directory": program_of(
        "import os\nprint(os.getcwd(), open('job.py').read()[:9], os.path.abspath('x'), os.listdir())"
    ),
    "stdin": program_of(
        "import sys, os\nprint(repr(sys.stdin.read()), sys.stdin.fileno(), sys.stdin.name, sys.stdin.mode, sys.stdin.isatty(), sys.stdin is sys.__stdin__)\ntry:\n    input()\nexcept EOFError as e: print('EOF', e)"
    ),
    "streams": program_of(
        """
        import sys, os, stat
        for s in (sys.stdin, sys.stdout, sys.stderr):
            print(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.newlines, s.isatty(), s.seekable(),
                  type(s.buffer).__name__, s.fileno(), s.closed, stat.S_IFMT(os.fstat(s.fileno()).st_mode), s.buffer.name)
        print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
        print("to stderr", file=sys.stderr); sys.stdout.buffer.write(b"raw\\n"); os.write(1, b"lower\\n"); print("no end", end="")
        """
    ),
    "exit status": program_of("import sys; sys.exit(3)"),
    "exit with words": program_of("import sys; sys.exit('what went wrong')"),
    "exit with None": program_of("print(1)\nraise SystemExit"),
    "exit with an object": program_of("import sys; sys.exit([1, 2])"),
    "exit at once": program_of("import os, atexit\natexit.register(print, 'never')\nos._exit(5)"),
    "abort": program_of("import os; os.abort()"),
    "an exception": program_of(
        """
        import json

        def deep(n):
            if n:
                return deep(n - 1)
            raise ValueError("wrong loss")


        try:
            deep(2)
        except ValueError as error:
            raise RuntimeError("step 3") from error
        """
    ),
    "an exception with notes": program_of(
        "e = ValueError('x')\ne.add_note('a note')\nraise ExceptionGroup('several', [e, KeyError(2)])"
    ),
    "a syntax error": program_of("import json\nprint('never')\nx = = 3\n"),
    "a missing module": program_of("import json\nimport no_such_module_at_all\n"),
    "an exception in a thread": program_of(
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start(); t.join(); print('after')"
    ),
    "recursion": program_of(
        "import sys\nprint(sys.getrecursionlimit())\ndef f(n=0):\n    try: return f(n + 1)\n    except RecursionError: return n\nprint(f())"
    ),
    "frames": program_of(
        """
        import sys, traceback, inspect
        traceback.print_stack()
        def f(): return [i.function for i in inspect.stack()]
        print(f(), sys._getframe().f_back, sys._getframe().f_code.co_filename)
        import warnings; warnings.warn("look", stacklevel=2)
        """
    ),
    "hooks": program_of(
        "import sys, threading\nprint(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace(), sys.getprofile(), threading.excepthook)\nsys.excepthook = lambda *a: print('mine', a[1])\nraise ValueError(3)"
    ),
    "at exit": program_of(
        """
        import atexit, threading, time, weakref, sys
        class Last:
            def __del__(self): print("deleted", flush=True)
        last = Last()
        atexit.register(print, "first registered")
        atexit.register(print, "last registered")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread done"))).start()
        threading.Thread(target=lambda: (time.sleep(60), print("never")), daemon=True).start()
        print("end of main")
        """
    ),
    "faulthandler": program_of(
        "import faulthandler, os, json\nprint(faulthandler.is_enabled())\ndef sink():\n    faulthandler.dump_traceback(); os.kill(os.getpid(), 11)\nsink()"
    ),
    "the main thread": program_of(
        """
        import threading, os, _thread
        main = threading.main_thread()
        print(main is threading.current_thread(), main.ident == threading.get_ident(), main.native_id == os.getpid())
        print(threading.active_count(), main.name, main.daemon, len(os.listdir("/proc/self/task")), os.getpid() == _thread.get_native_id())
        """
    ),
    "environment": program_of(
        """
        import os, subprocess
        HIDE = ("HOLDFAST", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "PYTHONHASHSEED")
        shown = lambda items: [(k, v) for k, v in items if not k.startswith(HIDE)]
        print(shown(os.environ.items()))
        lines = subprocess.run(["env", "-0"], capture_output=True, text=True).stdout.rstrip("\\0").split("\\0")
        print(shown(line.split("=", 1) for line in lines) == shown(os.environ.items()), type(os.environ).__name__)
        os.environ["NEW"] = "1"; del os.environ["HOME"]
        import ctypes; getenv = ctypes.CDLL(None).getenv; getenv.restype = ctypes.c_char_p
        print(getenv(b"NEW"), getenv(b"HOME"), getenv(b"RANK"), "HOLDFAST_NURSERY" in os.environ)
        """
    ),
    "process": program_of(
        """
        import os, resource
        me = os.getpid()
        print(os.getsid(0) == me, os.getpgid(0) == me, os.umask(0o22), os.nice(0), os.sched_getaffinity(0), os.getpriority(0, 0))
        print([(n, resource.getrlimit(getattr(resource, n))) for n in dir(resource) if n.startswith("RLIMIT")])
        print(sorted(os.listdir("/proc/self/fd"), key=int), os.open("/dev/null", 0), os.getppid() > 1, os.getgroups())
        import ctypes; out = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(out)); print("parent death signal", out.value)
        print(open("/proc/self/oom_score_adj").read(), open("/proc/self/comm").read(), os.readlink("/proc/self/exe"))
        """
    ),
    "flags": Program(
        {
            "job.py": "import sys, warnings\nprint(sys.flags, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode)\nassert False\nwarnings.warn('w')\nprint(__debug__, sys.flags.optimize, sys.getswitchinterval())"
        }
    ),
    "settings of the interpreter": program_of(
        """
        import gc, sys, locale, time
        print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), sys.getswitchinterval(), sys.getdefaultencoding(), sys.getfilesystemencoding())
        print(locale.getlocale(), locale.setlocale(locale.LC_ALL), time.tzname, sys.intern("a") is "".join(["a"]), sys.int_info, sys.get_int_max_str_digits())
        """
    ),
    "warnings": program_of(
        "import warnings\nprint([(f[0], f[2].__name__, f[3]) for f in warnings.filters])\nwarnings.warn('once', DeprecationWarning)\nwarnings.warn('user')"
    ),
    "variables set before imports": program_of(
        """
        import os
        os.environ["DECIMAL_HINT"] = "7"
        os.environ.setdefault("RANK", "none")
        import json, decimal
        print(os.environ["DECIMAL_HINT"], os.environ["RANK"])
        """
    ),
    "a path set before imports": program_of(
        "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))\nimport json, secret\nprint(secret.S, sys.path[0])",
        lib_of_secret="S = 42",
    ),
    "an import that shadows": program_of("import json, queue\nprint(queue.__file__)", queue="X = 1"),
    "words printed by imports": program_of(
        "import this, antigravity_free_zone\n", antigravity_free_zone="print('local')"
    ),
    "asyncio": program_of(
        "import asyncio\nasync def main():\n    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n    print((await p.communicate())[0], p.returncode)\nasyncio.run(main())"
    ),
    "logging": program_of(
        "import logging, time\nlogging.basicConfig(format='%(relativeCreated)d %(process)d %(message)s')\nr = logging.LogRecord('a', 1, 'p', 1, 'm', (), None)\nprint(r.relativeCreated < 400, r.processName, r.threadName)\nlogging.error('x') if 0 else logging.getLogger().handlers and print('ok')"
    ),
    "seeded": program_of(
        "import random\nrandom.seed(3)\nprint(random.random(), random.getrandbits(40))\nimport hashlib; print(hashlib.sha256(b'a').hexdigest())"
    ),
    "temporary files": program_of(
        "import tempfile, os\nwith tempfile.NamedTemporaryFile() as f: print(os.path.dirname(f.name) == tempfile.gettempdir())\nimport uuid; print(uuid.UUID(int=3), uuid.uuid5(uuid.NAMESPACE_DNS, 'a'))"
    ),
    "annotations and typing": program_of(
        "from __future__ import annotations\nimport dataclasses, typing\n@dataclasses.dataclass\nclass A:\n    x: int = 3\nv: list[int] = []\nprint(typing.get_type_hints(A), __annotations__, A())"
    ),
    "source lines": program_of(
        "import inspect, linecache\ndef f():\n    return 1\nprint(inspect.getsource(f), linecache.getline(__file__, 2))"
    ),
    "its own children": program_of(
        "import os, subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.path[0] == \"\", sys.argv)'], capture_output=True, text=True).stdout)\npid = os.fork()\nif not pid: os._exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.path.exists('/proc/self/task'))"
    ),
}

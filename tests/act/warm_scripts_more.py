"""More programs that look at what a fresh Python process has: the rarer things, and the ones that once differed."""

# Programs are data, one to a line where that reads better:
# ruff: noqa: E501

from __future__ import annotations

from warm_scripts import Program

MORE_PROGRAMS: dict[str, Program] = {
    "the main module's own things": Program(
        {
            "job.py": """
        import sys, builtins
        print(__builtins__ is builtins, __spec__, __cached__, __loader__.__class__, sys.modules['__main__'].__builtins__)
        print(sorted(vars(sys.modules['__main__'])))
        print(__loader__.get_source('__main__')[:20], __loader__.get_filename())
        """
        }
    ),
    "objects of main in children of three kinds": Program(
        {
            "job.py": """
        import multiprocessing as mp, dataclasses, enum, os, sys
        class E(enum.Enum):
            A = 1
        @dataclasses.dataclass
        class D:
            e: E
        def work(q, d): q.put((d.e is E.A, type(d).__module__, __name__, sys.argv, sys.path[0], len(sys.path), mp.current_process().name, mp.parent_process().name, d))
        if __name__ == '__main__':
            for how in ('spawn', 'fork', 'forkserver'):
                c = mp.get_context(how); q = c.Queue(); p = c.Process(target=work, args=(q, D(E.A))); p.start()
                print(how, q.get()); p.join(); print(p.exitcode)
        """
        },
        ("job.py", "arg"),
    ),
    "shared memory and a manager": Program(
        {
            "job.py": """
        import multiprocessing as mp
        from multiprocessing import shared_memory
        def work(d, name):
            s = shared_memory.SharedMemory(name); s.buf[0] = 7; s.close(); d['x'] = 1
        if __name__ == '__main__':
            s = shared_memory.SharedMemory(create=True, size=100)
            with mp.Manager() as m:
                d = m.dict(); p = mp.Process(target=work, args=(d, s.name)); p.start(); p.join(); print(dict(d), s.buf[0])
            s.close(); s.unlink()
            print(mp.Value('i', 3).value, mp.Lock())
        """
        }
    ),
    "order at exit": Program(
        {
            "job.py": """
        import atexit, logging, multiprocessing, weakref, concurrent.futures.thread, threading, sys
        print(atexit._ncallbacks())
        class A: pass
        a = A(); weakref.finalize(a, print, 'finalize')
        atexit.register(print, 'one'); atexit.register(print, 'two')
        threading._register_atexit(print, 'thread atexit')
        """
        }
    ),
    "filters of warnings": Program(
        {
            "job.py": "import warnings, sys\nprint(warnings.filters, sys.warnoptions, warnings.onceregistry, warnings.defaultaction)\nprint(globals().get('__warningregistry__'))\nwarnings.warn('a', FutureWarning)\nwarnings.warn('a', ResourceWarning)\nopen('/dev/null')\n"
        }
    ),
    "state of logging": Program(
        {
            "job.py": """
        import logging, logging.config
        print(logging.root.handlers, logging.root.level, sorted(logging.root.manager.loggerDict), logging.Logger.manager.disable, logging.lastResort, logging.raiseExceptions)
        logging.warning('to stderr'); logging.getLogger('x').error('y')
        print(logging.root.handlers)
        """
        }
    ),
    "all signals, as the kernel has them": Program(
        {
            "job.py": """
        import signal, ctypes
        for n in sorted(signal.valid_signals()): print(int(n), signal.getsignal(n) if n != 2 else signal.getsignal(n) is signal.default_int_handler)
        for line in open('/proc/self/status'):
            if line.startswith(('SigI', 'SigB', 'SigC', 'SigP', 'Shd', 'NoNewPrivs', 'Cap', 'Seccomp', 'Uid', 'Gid', 'Threads', 'Umask', 'CoreDumping', 'THP', 'Cpus_allowed:')): print(line.strip())
        print(signal.sigpending())
        """
        }
    ),
    "streams in detail": Program(
        {
            "job.py": """
        import sys, io
        print(sys.stdin, sys.stdout, sys.stderr)
        print(sys.stdin.buffer, sys.stdin.buffer.raw, sys.stdin.buffer.raw.name, sys.stdin.buffer.raw.closefd, sys.stdin.buffer.raw.mode)
        print(sys.stdout.buffer, sys.stdin.line_buffering, sys.stdin.write_through, sys.stdin.newlines, sys.stdin.errors, sys.stdin._CHUNK_SIZE)
        sys.stdin.close(); sys.stdout.flush(); sys.stdout.reconfigure(line_buffering=False); print('x')
        sys.stdin = open('/dev/null'); print(sys.stdin.read())
        """
        }
    ),
    "attributes of the process": Program(
        {
            "job.py": """
        import os, resource
        print(oct(os.umask(0)), os.nice(0), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), os.getgroups(), os.getresuid())
        for name in ('timerslack_ns', 'coredump_filter', 'personality', 'loginuid', 'oom_score_adj', 'oom_adj'):
            try: print(name, open('/proc/self/' + name).read())
            except OSError as e: print(e.errno)
        import ctypes; l = ctypes.CDLL(None)
        v = ctypes.c_int(); print([(o, l.prctl(o, ctypes.byref(v)), v.value) for o in (2, 37)], [(o, l.prctl(o, 0, 0, 0, 0)) for o in (3, 7, 21, 39, 42, 30)])
        buf = ctypes.create_string_buffer(16); l.prctl(16, buf); print(buf.value)
        """
        }
    ),
    "usage starts anew": Program(
        {
            "job.py": """
        import time, resource, os
        print(time.process_time() < 0.5, time.thread_time() < 0.5, resource.getrusage(resource.RUSAGE_SELF).ru_utime < 1.0, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[19]) / os.sysconf('SC_CLK_TCK'); print(age < 2)
        print(os.times().children_user, os.times().children_system)
        """
        }
    ),
    "a working directory that is gone": Program(
        {
            "job.py": "import os, tempfile\nd = tempfile.mkdtemp(prefix='x'); os.chdir(d); os.rmdir(d)\ntry: os.getcwd()\nexcept FileNotFoundError as e: print(e)\nimport wave; print(wave.__name__)"
        }
    ),
    "pickles of a module run by -m": Program(
        {
            "pkg/__init__.py": "",
            "pkg/mod.py": "import multiprocessing as mp\nclass A: pass\ndef w(a): return type(a).__module__, __name__\nif __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as p: print(p.map(w, [A()]))",
        },
        ("-m", "pkg.mod"),
    ),
    "-m of an installed package": Program(
        {"test_x.py": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, 2)\n"},
        ("-m", "unittest", "-q", "test_x.T.test_b"),
    ),
    "imports that are not done": Program(
        {
            "job.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import no_such, decimal\ntry:\n    import no_such_2\nexcept ImportError as e:\n    print(e, e.name, e.path)\nimport sys; print('decimal' in sys.modules)"
        }
    ),
    "an installed import that prints": Program({"job.py": "import this\nprint('after')"}),
    "a module of its own with all sorts of side effects": Program(
        {
            "job.py": "import os, sys, sock\nprint(os.environ['X'], os.getcwd() == '/', sock.s.fileno() > 2, sys.path[-1], sock.p.wait())\nimport signal; print(signal.getsignal(10), sock.__name__)",
            "sock.py": "import socket, os, sys, subprocess, atexit, signal\ns = socket.socket()\nos.environ['X'] = '1'\nos.chdir('/')\nsys.path.append('/nowhere')\np = subprocess.Popen(['true'])\natexit.register(print, 'bye')\nsignal.signal(10, signal.SIG_IGN)\n",
        }
    ),
    "exit with a text that is not ASCII": Program({"job.py": "import sys; sys.exit('bye \u00e9')"}),
    "exit with 300, text in the buffer": Program({"job.py": "import os; print('lost', end=''); os._exit(300)"}),
    "killing its own group": Program({"job.py": "import os, signal; os.killpg(0, signal.SIGKILL)"}),
    "threads that end in exceptions": Program(
        {
            "job.py": "import threading, sys\ndef f(): raise SystemExit(3)\nt = threading.Thread(target=f); t.start(); t.join()\ndef g(): raise ValueError('in thread')\nthreading.Thread(target=g, name='G').start()"
        }
    ),
    "an exception at exit": Program({"job.py": "import atexit\natexit.register(lambda: 1 / 0)\n"}),
    "stdout closed before the end": Program({"job.py": "import sys, os\nsys.stdout.write('x'); os.close(1)\n"}),
    "garbage collection": Program(
        {
            "job.py": """
        import gc
        print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage)
        class A: pass
        a = A(); a.s = a; del a; print(gc.collect() > 0)
        gc.disable(); gc.enable(); gc.freeze(); gc.unfreeze(); print(gc.get_freeze_count())
        """
        }
    ),
    "contextvars and asyncio": Program(
        {
            "job.py": """
        import contextvars, asyncio, decimal
        v = contextvars.ContextVar('v', default=1)
        print(list(contextvars.copy_context().items()), v.get(), decimal.getcontext())
        async def main():
            v.set(2); await asyncio.sleep(0.01); print(v.get(), asyncio.get_running_loop().is_running(), type(asyncio.get_running_loop()).__name__)
        asyncio.run(main()); print(v.get())
        async def sub():
            p = await asyncio.create_subprocess_shell('exit 3'); return await p.wait()
        print(asyncio.run(sub()))
        """
        }
    ),
    "children with a preexec_fn": Program(
        {
            "job.py": "import subprocess, os\nprint(subprocess.run(['sh', '-c', 'umask; ulimit -n; ls /proc/self/fd | wc -l; cat /proc/self/comm'], preexec_fn=lambda: os.umask(0o77), capture_output=True, text=True).stdout)\nprint(os.system('exit 3'), os.popen('echo hi').read())"
        }
    ),
    "ctypes": Program(
        {
            "job.py": "import ctypes, ctypes.util\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.getpid() == __import__('os').getpid(), ctypes.get_errno(), l.close(-1), ctypes.get_errno(), l.strlen(b'abc'))\nprint(ctypes.pythonapi.Py_IsInitialized(), ctypes.pythonapi.Py_IsInitialized.restype, ctypes.CDLL(None).sbrk.restype)"
        }
    ),
    "no trace of the nursery in the environment": Program(
        {
            "job.py": "import os\nprint([k for k in os.environ if 'NURSERY' in k], os.environ.get('PYTHONPATH'), os.environb[b'RANK'], os.getenv('LOCAL_RANK'), 'NURSERY' in os.popen('env').read())"
        }
    ),
    "exceptions around exceptions": Program(
        {
            "job.py": "import sys\nprint(sys.exc_info(), hasattr(sys, 'last_value'), sys.exception(), hasattr(sys, 'ps1'))\ntry:\n    raise ValueError('first')\nexcept ValueError as e:\n    print(e.__context__, e.__cause__)\n    import traceback; print(traceback.format_exc())\nraise RuntimeError('no context')"
        }
    ),
    "a script behind a link": Program(
        {"real/job.py": "import sys, side\nprint(__file__, sys.path[0], sys.argv, side.S)", "real/side.py": "S = 1"},
        ("link.py",),
    ),
    "a script without .py": Program({"train": "import sys, json\nprint(__file__, __name__, sys.argv)"}, ("train",)),
    "becoming another program": Program(
        {
            "job.py": 'import os, sys\nos.execv(sys.executable, [sys.executable, \'-c\', \'import sys, os; print(sys.argv, os.environ["RANK"], sorted(os.listdir("/proc/self/fd"))[:3], os.environ.get("PYTHONPATH"))\'])'
        }
    ),
    "starting itself again": Program(
        {
            "job.py": "import os, sys\nif not os.environ.get('AGAIN'):\n    os.environ['AGAIN'] = '1'; os.execv(sys.orig_argv[0], sys.orig_argv)\nprint(sys.argv, sys.path)"
        }
    ),
    "what psutil sees": Program(
        {
            "job.py": "print(open('/proc/self/cmdline').read().split(chr(0))[:3], open('/proc/self/comm').read())\nimport psutil; p = psutil.Process(); print(p.name(), p.cmdline()[:3], p.exe(), p.cwd(), p.terminal())"
        },
        ("job.py",),
        ("psutil",),
    ),
    "variables for the C library": Program(
        {
            "job.py": "import os\nos.environ['OMP_NUM_THREADS'] = '3'\nos.environ.setdefault('HF_HOME', '/x')\nimport json\nprint(os.environ['OMP_NUM_THREADS'], os.environ['HF_HOME'], os.getenv('OMP_NUM_THREADS'))\nimport ctypes; g = ctypes.CDLL(None).getenv; g.restype = ctypes.c_char_p; print(g(b'OMP_NUM_THREADS'))"
        }
    ),
    "deprecated modules": Program(
        {
            "job.py": "import json, imp\nimport asyncore\nprint('x')\nimport helper",
            "helper.py": "import asynchat\nimport helper2",
            "helper2.py": "import smtpd",
        }
    ),
    "deprecated modules, filtered": Program(
        {
            "job.py": "import json, warnings\nwarnings.filterwarnings('ignore', category=DeprecationWarning)\nimport imp\nimport asyncore\nprint(warnings.filters)"
        }
    ),
    "deprecated modules, by -m": Program(
        {"pkg/__init__.py": "", "pkg/mod.py": "import imp\nimport pkg.b\nprint(3)", "pkg/b.py": "import asyncore"},
        ("-m", "pkg.mod"),
    ),
    "deprecated modules, from a directory": Program(
        {"app/__main__.py": "import imp\nimport b\nprint(3)", "app/b.py": "import asyncore"}, ("app",)
    ),
    "argv set before imports": Program(
        {"job.py": "import sys\nsys.argv = ['other', 'x']\nimport json, decimal\nprint(sys.argv)"}, ("job.py", "a")
    ),
    "installed modules that cannot be imported here": Program(
        {
            "job.py": "import json\ntry:\n    import ctypes.wintypes, msvcrt\nexcept ImportError as e:\n    print(e)\ntry:\n    import asyncio.windows_events\nexcept ImportError as e:\n    print('caught', e)\nimport decimal, sys\nprint('asyncio' in sys.modules)"
        }
    ),
}

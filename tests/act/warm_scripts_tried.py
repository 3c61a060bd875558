"""Programs of the kinds that people bring: frameworks' tricks, odd places and names, processes and signals of their
own."""

# Programs are data, one to a line where that reads better:
# ruff: noqa: E501

from __future__ import annotations

from warm_scripts import Program, program_of

TRIED: dict[str, Program] = {
    "what is told that it ends": program_of(
        """
        import gc, sys, weakref
        class Told:
            def __del__(self): print("deleted", sys is None, flush=True)
        def waits():
            try: yield 1
            finally: print("closed", flush=True)
        gone = Told(); gone.itself = gone; seen = weakref.ref(gone); del gone; gc.collect(); print(seen())
        last, waiting = Told(), waits(); next(waiting); last.circle = [last]
        import __main__
        """
    ),
    "filters of warnings behind imports": program_of(
        """
        import warnings, json
        print(warnings.filters); warnings.warn("told")
        warnings.simplefilter("ignore", category=DeprecationWarning)
        import imp, asyncore
        print(warnings.filters)
        warnings.simplefilter("error")
        import csv
        warnings.warn("raised")
        """
    ),
    "a function for the end before imports": program_of(
        """
        import atexit
        atexit.register(print, "first of mine")
        import logging, multiprocessing.util, concurrent.futures.thread
        atexit.register(print, "last of mine")
        class Handler(logging.Handler):
            def emit(self, record): pass
            def close(self): print("closed"); super().close()
        logging.getLogger().addHandler(Handler())
        """
    ),
    "logging and seeds before imports": program_of(
        "import logging, random\nlogging.basicConfig(level=20, format='mine %(message)s')\nrandom.seed(3)\nimport tempfile, asyncio, uuid\nlogging.info('x'); print(random.random(), logging.root.handlers)\nnext(tempfile._get_candidate_names()); print(random.random())"
    ),
    "a decorated main that reads its configuration": Program(
        {
            "job.py": """
        import argparse, functools, inspect, json, os, pathlib, sys
        def main(config_path):
            def decorate(function):
                @functools.wraps(function)
                def run():
                    parser = argparse.ArgumentParser(); parser.add_argument("over", nargs="*")
                    here = pathlib.Path(inspect.getsourcefile(function)).resolve().parent
                    config = json.loads((here / config_path / "c.json").read_text())
                    config.update(each.split("=") for each in parser.parse_args().over)
                    out = here / "outputs" / "1"; out.mkdir(parents=True); os.chdir(out)
                    print(sys.modules[function.__module__].__spec__, function.__module__, parser.prog)
                    return function(config)
                return run
            return decorate
        @main(config_path="conf")
        def app(config):
            print(config, os.getcwd(), sys.argv, inspect.getsource(app).count("def "))
        if __name__ == "__main__":
            app()
        """,
            "conf/c.json": '{"lr": 1}',
        },
        ("job.py", "lr=3", "m=x"),
    ),
    "wrong arguments": program_of(
        "'''About it.'''\nimport argparse\nparser = argparse.ArgumentParser(description=__doc__)\nparser.add_argument('--n', type=int)\nprint(parser.prog); parser.parse_args()",
        "--n",
        "x",
    ),
    "modules that import when they are asked": program_of(
        """
        import sys, lazy
        print(type(lazy).__name__, "lazy.heavy" in sys.modules, "wave" in sys.modules)
        from lazy import Heavy
        print(Heavy, "lazy.heavy" in sys.modules, lazy.decimal)
        import importlib.util
        spec = importlib.util.find_spec("sched"); spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec); sys.modules["sched"] = module; spec.loader.exec_module(module)
        print(type(module).__name__, module.scheduler.__name__, type(module).__name__)
        """,
        lazy_of___init__="""
        import importlib, sys
        from types import ModuleType
        class Lazy(ModuleType):
            def __init__(self, name, path, spec): super().__init__(name); self.__path__ = path; self.__spec__ = spec; self.__file__ = path[0] + "/__init__.py"
            def __getattr__(self, name):
                if name == "Heavy": return importlib.import_module(".heavy", "lazy").Heavy
                if name == "decimal": return importlib.import_module("decimal").__name__
                raise AttributeError(name)
        sys.modules[__name__] = Lazy(__name__, __path__, __spec__)
        """,
        lazy_of_heavy="import json, wave\nclass Heavy: pass\n",
    ),
    "from the future, with a coding": program_of(
        "# -*- coding: latin-1 -*-\n'''d'''\nfrom __future__ import annotations\nimport json\ndef f(x: Undefined) -> None: ...\nprint(f.__annotations__, __doc__, annotations.compiler_flag)"
    ),
    "numpy, seeded in the line of its import": program_of(
        "import numpy as np; np.random.seed(0)\nimport random; random.seed(0)\nprint(np.random.rand(3), random.random(), np.random.RandomState(4).rand(), np.random.default_rng(3).random())",
        needs=("numpy",),
    ),
    "numpy, with a number of threads": program_of(
        "import os\nos.environ['OMP_NUM_THREADS'] = '2'\nos.environ['OPENBLAS_NUM_THREADS'] = '2'\nimport numpy as np\nprint(np.ones((900, 900)).dot(np.ones((900, 900))).sum(), os.environ['OMP_NUM_THREADS'], len(os.listdir('/proc/self/task')))",
        needs=("numpy",),
    ),
    "a directory with the name of a module": Program(
        {
            "json/train.py": "import sys, json\nprint(sys.path[0][-4:], json.__file__)\nimport side",
            "json/side.py": "print(1)",
        },
        ("json/train.py",),
    ),
    "a script with the name of a module": Program(
        {"queue.py": "import json\nprint(__name__, __file__)\nimport queue as again; print(again.__file__)"},
        ("queue.py",),
    ),
    "spaces and letters of other alphabets": Program(
        {
            "my dir é/jöb 1.py": "import sys, json, nébour\nprint(sys.argv, __file__, sys.path[0])\nraise ValueError('ü')",
            "my dir é/nébour.py": "import csv\nprint(__file__)",
        },
        ("my dir é/jöb 1.py", "a b", "é"),
    ),
    "a path with dots": Program(
        {
            "sub/job.py": "import os, sys, json\nprint(__file__, sys.path[0], sys.argv)\nos.chdir('/'); import side",
            "sub/side.py": "print(1)",
        },
        ("sub/../sub/./job.py",),
    ),
    "a module of one's own instead of an installed one": Program(
        {"job.py": "import json, click\nprint(click.X)", "click.py": "import argparse\nX = 1"}
    ),
    "an archive": Program(
        {
            "app/__main__.py": "import sys, json, inner\nprint(sys.argv, __file__, sys.path[0], inner.X, __spec__.name)\nraise ValueError('in zip')",
            "app/inner.py": "import csv\nX = 1",
        },
        ("app.pyz", "1"),
    ),
    "a directory without __init__ by -m": Program(
        {
            "ns/sub/tool.py": "import sys\nfrom . import other\nprint(__package__, __spec__.parent, other.O)",
            "ns/sub/other.py": "O = 2",
        },
        ("-m", "ns.sub.tool"),
    ),
    "a package inside a package by -m": Program(
        {
            "a/__init__.py": "print('a')",
            "a/b/__init__.py": "print('b')",
            "a/b/__main__.py": "import sys\nfrom .. import b\nfrom ..c import C\nprint(__package__, __spec__.name, C, sys.argv, __file__)\n1 / 0",
            "a/c.py": "C = 1\nimport json",
        },
        ("-m", "a.b", "x"),
    ),
    "no such module by -m": Program({"job.py": ""}, ("-m", "no_such_module_here")),
    "the profiler by -m": Program(
        {"job.py": "import json, sys\nprint(sys.argv, __name__, __file__)"},
        ("-m", "cProfile", "-o", "prof", "job.py", "a"),
    ),
    "the debugger by -m": Program(
        {"job.py": "import json\nprint(1)\n"}, ("-m", "pdb", "-c", "continue", "-c", "q", "job.py")
    ),
    "itself as a module": program_of(
        "import json\nimport job\nprint(__name__, job.__name__ if __name__ == '__main__' else '')"
    ),
    "an expression over many lines": program_of(
        """
        import json

        def a(x):
            return (json.loads(x)
                    + 1)


        class K:
            @property
            def p(self):
                return a(
                    "{bad")

        K().p
        """
    ),
    "sources": program_of(
        """
        import dataclasses, inspect, json
        @dataclasses.dataclass
        class D:
            x: int = 1
            def m(self):
                return 1
        def f(a, *, b=2):
            def g(): return a
            return g
        print(inspect.getsource(D), inspect.getsource(f(1)), inspect.getfile(D), inspect.getmodule(f), inspect.getsourcelines(D.m))
        """
    ),
    "a fork at once": program_of(
        "import os\npid = os.fork()\nif pid == 0:\n    import threading; print(threading.main_thread() is threading.current_thread(), flush=True); os._exit(4)\nprint(os.waitpid(pid, 0)[1])\nimport sys, threading\npid = os.fork()\nif pid == 0: sys.exit(5)\nprint(os.waitpid(pid, 0)[1])"
    ),
    "a session of its own": program_of(
        "import os\ntry: os.setsid()\nexcept OSError as error: print(error)\npid = os.fork()\nif pid == 0: os.setsid(); print(os.getsid(0) == os.getpid(), flush=True); os._exit(0)\nprint(os.waitpid(pid, 0)[1])"
    ),
    "handlers of signals": program_of(
        """
        import os, signal
        old = [signal.signal(n, lambda number, frame: print("got", number)) for n in (15, 2, 10, 1)]
        print([getattr(each, "__name__", each) for each in old])
        for n in (15, 2, 10, 1): os.kill(os.getpid(), n)
        signal.pthread_sigmask(signal.SIG_BLOCK, [15]); os.kill(os.getpid(), 15); print(signal.sigpending(), signal.sigtimedwait([15], 1).si_signo)
        signal.signal(2, signal.default_int_handler); signal.raise_signal(2)
        """
    ),
    "a pipe nobody reads": program_of(
        """
        import os, signal, subprocess
        reader, writer = os.pipe(); os.close(reader)
        try: os.write(writer, b"x")
        except BrokenPipeError as error: print(error)
        print(subprocess.run(["sh", "-c", "kill -PIPE $$; echo lived"], capture_output=True), subprocess.run(["sh", "-c", "kill -PIPE $$; echo lived"], restore_signals=False, capture_output=True), flush=True)
        signal.signal(13, signal.SIG_DFL); os.write(writer, b"x")
        """
    ),
    "signals of asyncio": program_of(
        """
        import asyncio, os, signal
        async def main():
            stop = asyncio.Event(); asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
            os.kill(os.getpid(), 15); await stop.wait(); print(await asyncio.to_thread(lambda: 3))
        asyncio.run(main())
        async def boom(n): raise ValueError(n)
        async def group():
            async with asyncio.TaskGroup() as group: group.create_task(boom(1)); group.create_task(boom(2))
        try: asyncio.run(group())
        except* ValueError as errors: print(errors.exceptions)
        async def interrupted(): os.kill(os.getpid(), 2); await asyncio.sleep(5)
        asyncio.run(interrupted())
        """
    ),
    "an interpreter inside the interpreter": program_of(
        "import json\ntry:\n    import _xxsubinterpreters as interpreters\nexcept ImportError:\n    import _interpreters as interpreters\none = interpreters.create()\ninterpreters.run_string(one, 'import sys, json; print(__name__, sys.path, \"sitecustomize\" in sys.modules, flush=True)')\ninterpreters.destroy(one)"
    ),
    "a finder of its own, and threads of its modules": program_of(
        """
        import sys, importlib.abc, importlib.machinery
        class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
            def find_spec(self, name, path, target=None):
                if name == "virtual": return importlib.machinery.ModuleSpec(name, self)
            def create_module(self, spec): return None
            def exec_module(self, module): module.X = 5
        sys.meta_path.append(Finder())
        import virtual, csv, background
        background.stop.set(); background.thread.join(); print(virtual.X, len(sys.meta_path), background.seen)
        """,
        background="import threading, os\nstop, seen, pid = threading.Event(), [], os.getpid()\nthread = threading.Thread(target=lambda: (stop.wait(), seen.append(os.getpid() == pid)), daemon=True); thread.start()",
    ),
    "the ways multiprocessing starts": program_of(
        """
        import json, multiprocessing as mp
        def tell(queue): queue.put((mp.get_start_method(), mp.current_process().name, __name__))
        def fails(): raise ValueError("in child")
        if __name__ == "__main__":
            print(mp.get_start_method(allow_none=True))
            for how in ("spawn", "forkserver"):
                mp.set_start_method(how, force=True); queue = mp.Queue(); process = mp.Process(target=tell, args=(queue,)); process.start(); print(queue.get()); process.join()
            process = mp.Process(target=fails); process.start(); process.join(); print(process.exitcode)
        """
    ),
    "all threads dumped in the end": program_of(
        "import faulthandler, os, time\nfaulthandler.enable(); faulthandler.register(10)\nos.kill(os.getpid(), 10)\nfaulthandler.dump_traceback_later(0.1, exit=True)\ntime.sleep(20)"
    ),
    "limits of its own": program_of(
        "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\nfds = []\ntry:\n    while True: fds.append(os.open('/dev/null', 0))\nexcept OSError as error: print(error, len(fds))\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nbytearray(2 << 30)"
    ),
    "a status that is too large": program_of("import sys\nsys.exit(2 ** 70)"),
    "an end inside an end": program_of("import sys\ntry:\n    sys.exit(3)\nfinally:\n    raise KeyError('k')"),
    "a file with a mark and other line ends": Program(
        {"job.py": "\ufeff# -*- coding: utf-8 -*-\r\nimport json\r\nprint('é')\r\nraise KeyError\r\n"}
    ),
    "a debugger without a person": program_of("import json\nx = 3\nbreakpoint()\nprint('after')"),
    "an audit of all that happens": program_of(
        "import sys\nseen = set()\nsys.addaudithook(lambda event, words: seen.add(event))\nimport os\nos.listdir('.'); print('os.listdir' in seen)\nlines = []\ndef trace(frame, event, arg):\n    lines.append((frame.f_code.co_name, event)); return trace\nsys.settrace(trace)\ndef f():\n    return 1\nf(); sys.settrace(None); print(lines)"
    ),
}

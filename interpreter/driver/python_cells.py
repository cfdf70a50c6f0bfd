# Cells are executed in one namespace, which lives as long as the interpreter.
# The driver loads this file with the first cell; `driver` is the module
# python.py.
import __future__ as future
import _thread
import ast
import functools
import io
import os
import sys
import threading
import time
import warnings

CO_COROUTINE = 0x80
# Seconds after which an incomplete line is flushed.
FLUSH_DELAY = 0.05


# -- Output -------------------------------------------------------------------


class Stream(io.TextIOWrapper):
    """Standard output or error. It sends complete lines immediately. Another
    thread flushes an incomplete line after a delay."""

    since = 0.0  # when the incomplete line began, or 0
    begun = False  # print writes the line end separately, usually right after the values

    def write(self, text):
        n = super().write(text)
        if "\n" in text:
            self.since, self.begun = 0.0, False
        elif not self.begun:
            self.begun = bool(text)
        elif not self.since:
            self.since = time.monotonic()
            Flusher.wake()
        return n


class Flusher:
    """The thread that flushes incomplete lines. It starts on first use, in
    each process."""

    needed = None  # an Event while the thread runs

    @classmethod
    def wake(cls):
        if cls.needed is None:
            cls.needed = threading.Event()
            _thread.start_new_thread(cls.work, (cls.needed,))
        cls.needed.set()

    @classmethod
    def reset(cls):
        cls.needed = None

    @staticmethod
    def work(needed):
        while True:
            needed.wait()
            needed.clear()
            while any([Flusher.unfinished(s) for s in (sys.__stdout__, sys.__stderr__)]):
                time.sleep(FLUSH_DELAY)

    @staticmethod
    def unfinished(stream):
        """Flush the stream if its time has come. Report whether it has not."""
        since = getattr(stream, "since", 0.0)
        if not since:
            return False
        if time.monotonic() - since < FLUSH_DELAY:
            return True
        stream.since = 0.0
        driver.ignore_errors(stream.flush)
        return False


def open_streams():
    """Replace Python's output streams with the driver's, and standard input
    with an empty one, even for child processes of cells, because the host's
    standard input never ends."""
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        old.flush()
        encoding, errors = old.encoding, old.errors
        new = Stream(old.detach(), encoding=encoding, errors=errors, line_buffering=True)
        new.mode = "w"
        setattr(sys, name, new)
        setattr(sys, "__%s__" % name, new)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = NoInput()
    os.register_at_fork(after_in_child=Flusher.reset)
    # Python 3.12 warns if a process with threads forks. The only other thread here is the
    # driver's.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)


def flush():
    # A cell may have replaced a stream with an object without flush.
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        driver.ignore_errors(lambda: stream.flush())
    driver.ignore_errors(driver.Libraries.flush)


class StdinNotImplementedError(NotImplementedError):
    """The exception of Jupyter's kernels when a cell asks for input."""

    __module__ = "builtins"


class NoInput(io.TextIOBase):
    """The standard input of cells."""

    encoding = "utf-8"
    name = "<stdin>"

    def read(self, size=-1):
        raise StdinNotImplementedError("a cell has no standard input: give it what it needs as a variable or a file")

    def readline(self, size=-1):
        return self.read()

    def __next__(self):
        return self.read()

    def close(self):
        """Do nothing. exit() closes the input before it raises SystemExit."""


# -- Packages that commands install --------------------------------------------


class UserPackages:
    """A finder that finds no modules. It lets the imports of a cell find the
    packages that pip has installed for the user in a command. As in a new
    interpreter, they precede the packages of the distribution. The check is a
    system call, so it is made at the start of a cell with the word import, and
    otherwise at the first import of the functions that the cell calls."""

    due = False

    def find_spec(self, name, path=None, target=None):
        # The standard library precedes all packages.
        if name.partition(".")[0] not in driver.Shadows.library:
            self.check()

    def find_distributions(self, context=None):
        self.check()  # importlib.metadata then searches the import path
        return iter(())

    def check(self):
        if self.due:
            self.due = False
            driver.ignore_errors(self.add_folder)

    def add_folder(self):
        site = sys.modules.get("site")
        user = site.getusersitepackages() if site is not None and site.ENABLE_USER_SITE else None
        if not user or user in sys.path or not os.path.isdir(user):
            return
        before = list(sys.path)
        site.addsitedir(user)
        added = [p for p in sys.path if p not in before]
        at = next((i for i, p in enumerate(before) if p.endswith(("-packages", "-packages/"))), len(before))
        sys.path[:] = before[:at] + added + before[at:]
        sys.path_importer_cache.clear()


# -- The shell ----------------------------------------------------------------


class Shell:
    """Runs cells in the name space of the module __main__."""

    def __init__(self, channel):
        self.channel = channel
        self.pid = os.getpid()
        self.count = 0
        self.uncounted = False  # the current cell has the number of the one before it
        self.running = False
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.tasks = Tasks(channel)
        self.module = driver.register_module("__main__")
        self.space = self.module.__dict__
        self.space.update(In=[""], Out={}, _="", __="", ___="", display=self.display)
        self.initial_names = list(self.space)
        self.rich = driver.load_sibling("python_rich")
        self.rich.patch_libraries(self.display, self.tasks.set_event_loop)
        self.packages = UserPackages()
        sys.meta_path.insert(0, self.packages)
        self.magic = None
        self.request = None  # the packages of the current step

    def cell(self, request):
        self.packages.due = True
        if "import" in request.get("code", ""):
            self.packages.check()  # not during an import, because .pth files may import modules
        self.run_cell(request)
        self.channel.send({"type": "end"})

    def step(self, request):
        """Run a cell of a notebook in a new interpreter, with the state that
        earlier cells left, and report the state that this cell leaves."""
        self.count = request.get("count") or 0
        self.request = request
        packages = request.get("packages") or []
        if packages:
            driver.load_sibling("python_magic").add_packages(packages)
        if request.get("uncarried"):
            self.report_dropped("were not carried into this step", {"packages": request["uncarried"]})
        state = driver.load_sibling("python_state")
        given = dict(self.space)
        missing = state.restore(self, request.get("state"), given)
        self.report_dropped("was not carried into this step", missing)
        error = self.run_cell(request)
        document, dropped = state.capture(self, given)
        self.report_dropped("is not carried to the next step", dropped)
        self.channel.send({"type": "end", "code": int(error is not None), "state": driver.RawJSON(document)})

    def report_installed(self, words):
        """Report the packages that pip has installed in a step, so that the
        next step gets them."""
        if self.request is None or os.getpid() != self.pid:
            return
        names, why = driver.load_sibling("python_magic").requirements(words)
        if why is None and any(name not in self.request["code"] for name in names):
            why = "only packages that the code itself names are carried"
        if why is None and not self.request.get("carried"):
            why = "this server installs no packages for steps (an operator can allow it with tools.packages)"
        if why is not None:
            self.report_dropped("is not carried to the next step", {"pip " + " ".join(words): why})
        elif names:
            self.channel.send({"type": "installed", "packages": names})

    def register_source(self, file):
        """Record the source of an earlier cell."""

    def report_dropped(self, what, names):
        """Report on standard error the names that a state lacks, with the
        reasons."""
        for name, why in names.items():
            text = "brig: %s %s: %s\n" % (name, what, why)
            driver.ignore_errors(lambda: sys.__stderr__.write(text))
        if names:
            flush()

    def run_cell(self, request):
        """Run a cell and report its end. Return the exception that it raised."""
        self.uncounted = bool(request.get("uncounted"))
        self.count += not self.uncounted
        self.channel.send({"type": "started", "count": self.count})
        before = {}

        def run():
            before.update(driver.apply_environment(request))
            self.tasks.set_event_loop()
            value = None
            try:
                value = self.execute(request.get("code", ""))
            finally:
                self.rich.show_figures(self.display, value)
            if value is not None:
                self.show_result(value)

        self.running = True
        error = driver.run_interruptible(run)
        self.running = False
        if self.channel.fd < 0:
            self.exit_child(error)
        driver.restore_environment(before)
        flush()
        if error is not None:
            self.channel.send(self.describe(error))
        return error

    def idle(self):
        """Run asyncio tasks until a request arrives."""
        self.tasks.idle()

    def exit_child(self, error):
        """Exit in a child process that the cell forked and that returned from
        the cell."""
        code = 0
        if isinstance(error, SystemExit):
            code = driver.exit_code(error)
        elif error is not None:
            code = 1
            driver.ignore_errors(lambda: sys.stderr.write(driver.format_error(error)))
        flush()
        os._exit(code)

    def execute(self, source):
        """Execute the source. The result is the value of the final expression."""
        name = "Cell" if self.uncounted else "Cell [%d]" % self.count
        if not self.uncounted:
            self.space["In"].append(source)
        driver.cache_source(name, source)
        code = self.translate(source)
        value = self.run(code, name)
        return None if ends_in_semicolon(code) else value

    def run(self, code, name):
        tree = compile(code, name, "exec", self.flags | ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        parts = [self.compile(tree, name, "exec")] if tree.body or last is None else []
        if last is not None:
            parts.append(self.compile(last, name, "eval"))
        if any(part.co_flags & CO_COROUTINE for part in parts):
            return self.tasks.wait(self.evaluate_all(parts))
        return [eval(part, self.space) for part in parts][-1]

    def compile(self, tree, name, mode):
        """Compile with the __future__ imports of earlier cells, and keep those
        of this one."""
        code = compile(tree, name, mode, self.flags, True)
        for feature in future.all_feature_names:
            self.flags |= code.co_flags & getattr(future, feature).compiler_flag
        return code

    async def evaluate_all(self, parts):
        value = None
        for part in parts:
            value = eval(part, self.space)
            if part.co_flags & CO_COROUTINE:
                value = await value
        return value

    def translate(self, source):
        """Return the source with magics and shell commands replaced by calls."""
        if "IPython" in source:
            self.rich.provide_ipython(self)
        if "%" not in source and "!" not in source and "pip" not in source:
            return source
        if self.magic is None:
            self.magic = driver.load_sibling("python_magic")
            self.space.setdefault("get_ipython", self.magic.open_magics(self).get)
        return self.magic.translate(source)

    def show_result(self, value):
        forms = self.rich.forms(value)
        space = self.space
        if not self.uncounted:
            space["___"], space["__"], space["_"] = space["__"], space["_"], value
            space["Out"][self.count] = space["_%d" % self.count] = value
        self.send("result", forms)

    def display(self, *values, raw=False, display_id=None, update=False, metadata=None, **options):
        """Display values in all their MIME types. Raw values are already MIME
        bundles. An update replaces earlier values with the same id."""
        handle = self.rich.Handle(self.display, display_id) if display_id else None
        for value in values:
            forms = value if raw else self.rich.forms(value)
            self.send("display", forms, metadata, handle and handle.display_id, update)
        return handle

    def clear_output(self, wait=False):
        """Report to the host that the previous output is obsolete."""
        if self.running:
            flush()
            self.channel.show({"type": "clear", "wait": bool(wait)})

    def send(self, kind, forms, metadata=None, display_id=None, update=False):
        if not self.running:
            return  # a thread displays a value while no cell runs
        flush()
        # A result is immediately followed by the end of the cell, so both are sent together.
        send = self.channel.buffer if kind == "result" else self.channel.show
        message = {"type": kind, "data": self.rich.encode_bundle(forms)}
        metadata = self.rich.encode_metadata(metadata)
        if metadata:
            message["metadata"] = metadata
        if display_id:
            message.update(display_id=str(display_id)[: self.rich.MAX_NAME], update=bool(update))
        send(message)

    def describe(self, error):
        value = "" if isinstance(error, SystemExit) and error.code is None else driver.error_message(error)
        return {"type": "error", "name": type(error).__name__, "value": value, "traceback": self.explain(error)}

    def explain(self, error):
        usage = self.magic and isinstance(error, self.magic.UsageError)
        return "UsageError: %s\n" % error if usage else driver.format_error(error)


def ends_in_semicolon(source):
    """Report whether the source ends in a semicolon."""
    if ";" not in source:
        return False
    tokenize = driver.own_module("tokenize")
    if tokenize is None:
        return False
    beside = (tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.DEDENT)
    last = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in beside:
                last = token.string
    except (tokenize.TokenError, SyntaxError):
        pass
    return last == ";"


class Tasks:
    """The event loop for the await of cells. It continues after a cell, with
    the tasks that the cell left."""

    def __init__(self, channel):
        self.channel = channel
        self.loop = None
        self.patched = False  # whether asyncio.create_task is patched

    def set_event_loop(self):
        """Make the loop the current one, even after asyncio.run."""
        asyncio = sys.modules.get("asyncio")
        if asyncio is None or not hasattr(asyncio, "set_event_loop"):
            return
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        if not self.patched:
            self.patched = True
            self.patch_create_task(asyncio)

    def patch_create_task(self, asyncio):
        """Let create_task work in cells that do not await. In a notebook the
        loop always runs; here it runs between cells."""
        original = asyncio.create_task

        @functools.wraps(original)
        def create_task(coro, **options):
            here = self.channel.ident() == self.channel.main
            if asyncio._get_running_loop() is None and here and not self.loop.is_closed():
                return self.loop.create_task(coro, **options)
            return original(coro, **options)

        asyncio.create_task = create_task

    def wait(self, awaitable):
        try:
            import asyncio
        except ImportError:
            awaitable.close()
            raise
        self.set_event_loop()
        task = self.loop.create_task(awaitable)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task]))
            raise

    def idle(self):
        loop, channel = self.loop, self.channel
        if loop is None or loop.is_closed():
            return
        channel.settle()
        if not channel.requests and sys.modules["asyncio"].all_tasks(loop):
            driver.ignore_errors(lambda: loop.run_until_complete(self.wait_for_order()))
            flush()

    async def wait_for_order(self):
        channel, come = self.channel, self.loop.create_future()

        def read():
            try:
                waiting = channel.read() and not channel.requests
            except OSError:
                waiting = False  # receive gets the same error
            if not waiting and not come.done():
                come.set_result(None)

        self.loop.add_reader(channel.fd, read)
        try:
            await come
        finally:
            self.loop.remove_reader(channel.fd)


def open_shell(channel):
    """Return the shell for this interpreter, which is IPython's if it is
    installed."""
    open_streams()
    sys.argv = [""]
    driver.set_search_path(None)
    driver.fork_by_default()
    os.environ.setdefault("MPLBACKEND", "Agg")
    # In a sandbox, pip may change the distribution's packages.
    os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    if not os.environ.get("BRIG_NO_IPYTHON"):
        try:
            return driver.load_sibling("python_ipython").open_shell(channel, Shell)
        except Exception:
            pass  # IPython is missing or does not work
    return Shell(channel)

# The Python driver. It reads requests from descriptor 3 and executes them. The
# other python_*.py files in this directory, such as python_cells.py, belong to
# it.
#
# Imports before the message "ready" delay every sandbox, so this file uses
# only modules that the interpreter has already loaded. It also runs on Pythons
# without json, traceback or threading, such as Debian's python3-minimal.
import os
import sys

CHANNEL = 3
ACK_TIMEOUT = 5  # seconds that a display waits for the host
HERE = os.path.dirname(os.path.abspath(__file__))
ARTIFACTS = "/workspace/artifacts"

# Modules that programs are likely to import and that need little memory.
PRELOAD = (
    "json re traceback linecache ast opcode threading subprocess collections datetime"
    " math random time io types functools itertools typing tempfile shutil resource atexit gc"
).split()


# -- JSON, by hand while there is no json ------------------------------------


def quote(text):
    """Return a str as JSON in ASCII. Lone surrogates are escaped, too."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return '"' + text + '"'
    units = text.encode("utf-16-le", "surrogatepass")
    out = []
    for i in range(0, len(units), 2):
        n = units[i] | units[i + 1] << 8
        plainly = 32 <= n < 127 and n not in (34, 92)
        out.append(chr(n) if plainly else "\\n" if n == 10 else "\\u%04x" % n)
    return '"' + "".join(out) + '"'


def encode_builtin(value):
    """Return the JSON of a value of built-in types."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int or kind is float and value - value == 0:
        return repr(value)
    if kind in (list, tuple):
        return "[" + ",".join([encode_builtin(v) for v in value]) + "]"
    if kind is dict and all(type(k) is str for k in value):
        return "{" + ",".join([quote(k) + ":" + encode_builtin(v) for k, v in value.items()]) + "}"
    raise TypeError("Object of type %s is not JSON serializable" % kind.__name__)


class RawJSON(str):
    """Text that is already JSON. It is inserted into a message unchanged."""


def decode(text):
    """Decode a JSON text from the host without the module json."""
    # Only the escape of a slash has a different meaning in Python.
    if "\\/" in text:
        text = text.replace("\\\\", "\0").replace("\\/", "/").replace("\0", "\\\\")
    value = eval(text, {"__builtins__": {}, "true": True, "false": False, "null": None})
    return join_surrogates(value) if "\\ud" in text.lower() else value


def join_surrogates(value):
    """Return the value with surrogate pairs replaced by their characters."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [join_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {join_surrogates(k): join_surrogates(v) for k, v in value.items()}
    return value


class Json:
    """The module json, once it is loaded. It is faster and supports more
    types. The driver keeps its own references, so programs that change the
    module do not affect it."""

    loads = dumps = quote = None

    @classmethod
    def load(cls):
        if cls.loads is None:
            json = own_module("json")
            if json is None:
                return
            cls.loads = json.JSONDecoder().decode
            cls.dumps = json.JSONEncoder(allow_nan=False).encode
            cls.quote = json.encoder.encode_basestring_ascii


def encode(value):
    if type(value) is RawJSON:
        return str(value)
    if type(value) is str:
        return (Json.quote or quote)(value)
    if type(value) is dict:
        return "{" + ",".join([quote(k) + ":" + encode(v) for k, v in value.items()]) + "}"
    return encode_builtin(value)


# -- The channel --------------------------------------------------------------


class Channel:
    """The socket to the host. Both sides send one JSON object per line. Messages
    repeat the nonce of their request, so that the host can distinguish them from lines
    that a program writes to the socket."""

    nonce = ""  # of the current request; None after its last message
    acks = False  # whether the host acknowledges displays
    sent = acked = 0  # numbers of displays
    select = None  # the module, if this Python has it

    def __init__(self, fd):
        import _thread

        os.set_inheritable(fd, False)
        self.fd = self.out = fd
        self.unread = b""
        self.requests = []  # lines that were received while a display waited
        self.buffered = b""
        self.make_locks()
        self.main = _thread.get_ident()
        self.ident = _thread.get_ident
        os.register_at_fork(after_in_child=self.close_after_fork)

    def make_locks(self):
        import _thread

        self.lock = _thread.allocate_lock()
        self.showing = _thread.RLock()  # held while a display waits

    def close_after_fork(self):
        """Close the channel in a forked child. Only the parent uses it."""
        for fd in {self.fd, self.out}:
            try:
                os.close(fd)
            except OSError:
                pass
        self.fd = self.out = -1
        self.make_locks()  # a thread of the parent may hold the others

    def park(self, folder):
        """Replace the host's descriptors, which cannot be saved, by the pipes in
        a folder. Without the pipes nothing changes."""
        pipes = []
        try:
            for name in ("orders", "messages", "stdout", "stderr"):
                pipes.append(os.open(folder + "/" + name, os.O_WRONLY if pipes else os.O_RDONLY))
            with self.lock:
                os.write(pipes[1], b'{"type":"parked"}\n')
        except OSError:
            for fd in pipes:
                os.close(fd)
            return
        with self.lock:
            os.close(self.fd)
            self.fd, self.out = pipes[:2]
            pipes[:2] = [os.open(os.devnull, os.O_RDONLY)]
            for number, fd in enumerate(pipes):
                os.dup2(fd, number)
                os.close(fd)
        self.send({"type": "parked"})

    def buffer(self, message):
        """Buffer a message, and send it together with the next one."""
        self.buffered += self.add_nonce(encode(message), message["type"])

    def add_nonce(self, text, kind):
        """Return a message with the nonce, from its JSON, which begins with its type."""
        at = len(kind) + len('{"type":""')
        return ('%s,"nonce":%s%s\n' % (text[:at], encode(self.nonce), text[at:])).encode("ascii")

    def show(self, message):
        """Send a display, and wait until the host has received it. Otherwise the host
        could not distinguish the output before it from the output after it."""
        if not self.acks or self.nonce is None or self.fd < 0:
            return self.send(message)
        with self.showing:
            self.sent = number = self.sent + 1
            if self.send(dict(message, ack=number)):
                self.await_ack(number)

    def await_ack(self, number):
        """Wait for the acknowledgement of a display, but for a limited time, and not
        longer than until the host sends something else."""
        while self.acked < number and not self.requests and self.fd >= 0:
            if self.select is None or not self.select.select([self.fd], [], [], ACK_TIMEOUT)[0]:
                return
            deferred = self.defer_sigint()
            connected = self.read()
            if deferred:
                deferred.end()
            if not connected:
                return

    def read(self):
        """Read lines from the host. Return whether it is connected."""
        part = os.read(self.fd, 1 << 16)
        self.add_lines(self.unread + part)
        return bool(part)

    def add_lines(self, data):
        """Keep the lines of requests for receive, and note acknowledgements."""
        *lines, self.unread = data.split(b"\n")
        for line in lines:
            self.add_request(line)

    def add_request(self, line):
        if line.startswith(b'{"op":"ack"'):
            self.acked = max(self.acked, (Json.loads or decode)(line.decode("utf-8"))["ack"])
        else:
            self.requests.append(line)

    def defer_sigint(self):
        return DeferSigint() if not sigint_ignored and self.ident() == self.main else None

    def send(self, message, lost=1):
        """Send a message to the host, and return whether it was sent. If the host has
        disconnected, exit with the code lost. Drop a message that a thread sends after
        the end of its cell."""
        if self.fd < 0:
            return False
        kind, text = message["type"], encode(message)
        deferred = self.defer_sigint()
        try:
            with self.lock:
                held, self.buffered = self.buffered, b""
                body = self.add_nonce(text, kind) if self.nonce is not None else b""
                data = memoryview(held + body) if body else b""
                while data:
                    data = data[os.write(self.out, data):]
                if kind in ("end", "pong"):
                    self.nonce = None
        except OSError:
            os._exit(lost)
        if deferred:
            deferred.end()
        return bool(body)

    def settle(self):
        """Wait until no thread waits for the host. Between cells, no other
        thread begins to wait."""
        with self.showing:
            pass

    def receive(self):
        """Return the next request, or None at the end of the channel."""
        self.settle()
        while not self.requests:
            parts = [self.unread]
            while b"\n" not in parts[-1]:
                part = os.read(self.fd, 1 << 16)
                if not part:
                    return None
                parts.append(part)
            self.add_lines(b"".join(parts))
        text = self.requests.pop(0).decode("utf-8")
        if '"arguments"' in text or '"state"' in text:
            Json.load()
        request = (Json.loads or decode)(text)
        self.nonce, self.acks = request.get("nonce", ""), "acks" in request
        return request


# -- Interrupts ---------------------------------------------------------------


def ignore_sigint(signum, frame):
    """Ignore SIGINT. SIG_IGN is not used, because child processes would inherit it."""


def set_sigint_handler(handler):
    """Set the handler of SIGINT. A pending SIGINT is handled before this
    returns."""
    import _signal

    global sigint_ignored
    sigint_ignored = False
    before = _signal.signal(_signal.SIGINT, handler)
    sigint_ignored = handler is ignore_sigint
    return before


sigint_ignored = False  # whether SIGINT is ignored now; it saves system calls


class DeferSigint:
    """Delays SIGINT, so that no message is sent partially."""

    def __init__(self):
        self.pending = False
        self.before = set_sigint_handler(self.defer)

    def defer(self, signum, frame):
        self.pending = True

    def end(self):
        set_sigint_handler(self.before)
        if self.pending and callable(self.before):
            self.before(2, None)


def resend_interrupt(unraisable, others=sys.unraisablehook):
    """Send an interrupt again that Python has discarded, for example because
    it was raised in a callback of an import."""
    import _thread
    import time

    def later():
        time.sleep(0.02)  # by then, the code that discarded it has ended
        os.kill(os.getpid(), 2)

    if unraisable.exc_type is not KeyboardInterrupt:
        return others(unraisable)
    _thread.start_new_thread(later, ())


def ignore_interrupts():
    """Ignore SIGINT from now on, including a pending signal."""
    while True:
        try:
            return set_sigint_handler(ignore_sigint)
        except KeyboardInterrupt:
            pass


interruptible_thread = None  # the thread in which SIGINT currently raises KeyboardInterrupt


def run_interruptible(run):
    """Call run with SIGINT enabled, and return the exception that it raised. An
    interrupt that arrives during the call has no effect after it."""
    import _signal
    import _thread

    global interruptible_thread
    error = None
    while True:
        try:
            if run is not None:
                step, run = run, None
                interruptible_thread = _thread.get_ident()
                set_sigint_handler(_signal.default_int_handler)
                step()
            set_sigint_handler(ignore_sigint)
            interruptible_thread = None
            return error
        except BaseException as exc:
            error = error or exc


# -- Errors -------------------------------------------------------------------


def strip_driver_frames(trace):
    """Return the traceback without the driver's frames and the asyncio frames
    that they called."""
    while trace is not None and is_driver_frame(trace):
        trace = trace.tb_next
        while trace is not None and "/asyncio/" in filename(trace):
            trace = trace.tb_next
    here = trace
    while here is not None and here.tb_next is not None:
        if is_driver_frame(here.tb_next):
            here.tb_next = here.tb_next.tb_next
        else:
            here = here.tb_next
    return trace


def is_driver_frame(trace):
    return filename(trace).startswith(HERE + "/python")


def filename(trace):
    return trace.tb_frame.f_code.co_filename


def format_error(exc):
    """Format an exception as Python does, without the driver's frames."""
    seen, todo = set(), [exc]
    while todo:
        e = todo.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        e.__traceback__ = strip_driver_frames(e.__traceback__)
        todo += [e.__cause__, e.__context__]
    traceback = own_module("traceback")
    if traceback is None:
        return format_minimal(exc)
    return "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))


def format_minimal(exc):
    """Format an exception without the module traceback."""
    lines = ["Traceback (most recent call last):\n"]
    trace = exc.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append('  File "%s", line %d, in %s\n' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    text = error_message(exc)
    lines.append(type(exc).__name__ + (": " + text if text else "") + "\n")
    return "".join(lines)


def error_message(exc):
    try:
        return str(exc)
    except Exception:
        return "<unprintable %s object>" % type(exc).__name__


def exit_code(exc):
    """Return the exit code of a SystemExit, as Python does."""
    if exc.code is None:
        return 0
    if isinstance(exc.code, int):
        return exc.code & 0xFF
    ignore_errors(lambda: print(exc.code, file=sys.stderr))
    return 1


def ignore_errors(step):
    """Call step and ignore exceptions, because they are errors of the program.
    An interrupt is for the cell, and ends it."""
    try:
        step()
    except KeyboardInterrupt:
        import _thread

        if interruptible_thread == _thread.get_ident():
            raise
    except BaseException:
        pass


# -- Imports ------------------------------------------------------------------


class ImportHook:
    """A finder that finds no modules. It only runs code when some are
    imported."""

    def __init__(self, actions):
        self.actions = actions

    def find_spec(self, name, path=None, target=None):
        if name not in self.actions:
            return None
        import importlib.util

        act = self.actions.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.actions[name] = act
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            ignore_errors(lambda: act(module))

        spec.loader.exec_module = exec_module
        return spec


def on_import(actions):
    """Call functions after the modules with the given names were imported."""
    sys.meta_path.insert(0, ImportHook(actions))


def fork_by_default():
    """Make multiprocessing fork, as before Python 3.14. Its other start
    methods import the program again, for which most programs are not written,
    and a cell has no file."""

    def context(module):
        module._default_context = module.DefaultContext(module._concrete_contexts["fork"])

    if sys.version_info >= (3, 14):
        on_import({"multiprocessing.context": context})


# -- Programs -----------------------------------------------------------------


def apply_environment(request):
    """Set the directory, environment and search path from a request. Return the
    previous environment."""
    before = {}
    for key, value in (request.get("env") or {}).items():
        before[key] = os.environ.get(key)
        os.environ[key] = value
    if before:
        apply_time_zone(before)
    if request.get("cwd"):
        enter_directory(request["cwd"])
    return before


def restore_environment(before):
    """Restore the environment that apply_environment changed."""
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    if before:
        apply_time_zone(before)


def apply_time_zone(keys):
    """Apply a change of TZ, which Python reads at its start."""
    if "TZ" in keys:
        import time

        time.tzset()


def set_limits(limits):
    """Set resource limits, but never above the current ones."""
    if not limits:
        return
    resource = own_module("resource")
    if resource is None:
        # Debian's smallest Pythons do not have the module resource, but every
        # Debian has util-linux.
        options = ["--%s=%d:%d" % (name, n, n) for name, n in limits.items()]
        os.spawnvp(os.P_WAIT, "prlimit", ["prlimit", "--pid", str(os.getpid())] + options)
        return
    for name, n in limits.items():
        which = getattr(resource, "RLIMIT_" + name.upper())
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            n = min(n, hard)
        resource.setrlimit(which, (n, n))


def register_module(name, kind=type(sys)):
    """Create a module and register it under its name."""
    module = kind(name)
    module.__builtins__ = __builtins__
    sys.modules[name] = module
    return module


# The directory of a program. The warm-up determines it, because the first system calls of a
# program are slow.
working_directory = None


def enter_directory(path):
    global working_directory
    working_directory = None
    os.chdir(path)


def change_directory(path):
    """Change to a working directory, as if the interpreter had been started
    there."""
    before = os.getcwd()
    enter_directory(path)
    sys.path[:] = [path if p == before else p for p in sys.path]


def set_search_path(env):
    """Set the import path as if Python had been started now, without the
    driver's directory. Return the directories before those of the interpreter."""
    named = [p for p in (env or {}).get("PYTHONPATH", "").split(":") if p]
    global working_directory
    working_directory = working_directory or os.getcwd()
    first = [working_directory] + named
    sys.path[:] = first + [p for p in sys.path if p != HERE and p not in named]
    return first


class Shadows:
    """The program's modules with names of the standard library. The program
    must get them, as with the plain interpreter, although the driver has loaded
    the originals, which it continues to use."""

    at_start = frozenset(sys.modules)  # the plain interpreter has loaded these, too
    library = frozenset(getattr(sys, "stdlib_module_names", ()) or PRELOAD)
    names = frozenset()
    folders = []
    own = {}  # the driver's modules with these names
    seen = (None, names)  # directories with their states, and the names for them

    @classmethod
    def find(cls, folders):
        """Forget the loaded modules that files in these directories shadow. The warm-up
        lists the directory of the program, which is listed again only if it has changed."""
        states = [(folder, cls.state(folder)) for folder in folders]
        if states != cls.seen[0]:
            cls.seen = cls.list_names(folders, states)
        cls.names, cls.folders = cls.seen[1], folders
        cls.own = cls.take()

    @classmethod
    def restore(cls):
        """Undo find."""
        sys.modules.update(cls.own)
        cls.names, cls.folders, cls.own = frozenset(), [], {}

    @staticmethod
    def state(folder):
        """Return a value that changes when an entry of a directory is added."""
        try:
            now = os.stat(folder)
        except OSError:
            return object()  # it equals no other state
        return now.st_dev, now.st_ino, now.st_mtime_ns, now.st_nlink, now.st_size

    @classmethod
    def list_names(cls, folders, states):
        """List directories in these states. Return a value for seen."""
        entries = [(folder, entry) for folder in folders for entry in list_directory(folder)]
        found = {cls.named(folder, entry) for folder, entry in entries} & cls.library
        if any(entry in cls.library for _, entry in entries):
            states = None  # a directory can become a package, and its parent does not change
        return states, found - cls.at_start - frozenset(sys.builtin_module_names)

    @classmethod
    def take(cls):
        """Remove the modules with these names from the loaded ones, and return them."""
        if not cls.names:
            return {}
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in cls.names}

    @classmethod
    def named(cls, folder, entry):
        """Return the name of the module in a directory's entry, or None."""
        name, dot, kind = entry.partition(".")
        if dot:
            return name if kind in ("py", "so") or kind.endswith(".so") else None
        # A directory without this file does not shadow a module.
        return name if name in cls.library and os.path.isfile(folder + "/" + name + "/__init__.py") else None

    @classmethod
    def load(cls, name):
        """Load a module of the standard library without the program's modules."""
        path, theirs = sys.path[:], cls.take()
        sys.modules.update(cls.own)
        sys.path[:] = [p for p in path if p not in cls.folders]
        try:
            __import__(name)
        finally:
            sys.path[:] = path
            cls.own = cls.take()
            sys.modules.update(theirs)

    @classmethod
    def loaded(cls, name):
        """Return a module of the standard library if it is loaded, or None."""
        return (cls.own if name in cls.names else sys.modules).get(name)


def own_module(name):
    """Return a module of the standard library that the driver uses, or None."""
    if Shadows.loaded(name) is None:
        try:
            Shadows.load(name)
        except Exception:
            return None  # this Python does not have it
    return Shadows.loaded(name)


def run_program(request, channel):
    """Run a whole program and exit as Python does."""
    import _signal

    arguments = request.get("arguments")
    answer = {"type": "end"}
    code = 0
    error = artifacts_dir = None
    set_sigint_handler(_signal.default_int_handler)
    sys.argv = ["main.py"]
    helpers = load_sibling("python_program")
    module = register_module("__main__" if arguments is None else "main", helpers.Program)
    sys.modules["__main__"] = module
    try:
        apply_environment(request)
        Shadows.find(set_search_path(request.get("env")))
        helpers.set_file(module, request.get("code", ""), channel)
        if request.get("artifacts"):
            artifacts_dir = create_directory("artifacts")
        set_limits(request.get("limits"))
        fork_by_default()
        # Each line is sent when it is printed, so it is not lost at a timeout.
        sys.stdout.reconfigure(line_buffering=True)
        run_source(request.get("code", ""), arguments, module, answer)
    except SystemExit as exc:
        code = exit_code(exc)
    except BaseException as exc:
        error = exc
    if error is not None:
        # This is not in the except block, where the exception would become the context of later
        # exceptions.
        code = report_failure(error, answer)
    error = None
    finalize(module)
    ignore_errors(ignore_interrupts)
    answer["code"] = code
    answer["artifacts"] = bool(list_directory(ARTIFACTS))
    if artifacts_dir and artifacts_dir[0] == os.getpid():
        ignore_errors(lambda: os.rmdir(artifacts_dir[1]))
    # The host waits until the last process has closed the output. It handles the
    # message while this process closes its own.
    answer["closed"] = True
    ignore_errors(lambda: channel.send(answer, lost=code))
    os.closerange(1, 3)  # in one system call, so that the host wakes up once
    os._exit(code)


def create_directory(name):
    """Create a directory that programs expect. Return this process's ID and the
    path. This process removes the directory at its end if it is empty."""
    try:
        os.mkdir(name)
        return os.getpid(), os.path.abspath(name)
    except OSError:
        return None  # it exists, or this user may not create it


def run_source(source, arguments, module, answer):
    """Run the source. Call main if the request has arguments, or if main is
    defined and has not been entered when the program would end."""
    source = source[1:] if source.startswith("\ufeff") else source
    cache_source("main.py", source)
    watch = None
    if arguments is None and "main" in source:
        watch = load_sibling("python_program").MainTracker(source)
        code = watch.code
    else:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    exec(code, module.__dict__)
    main = module.__dict__.get("main")
    if not callable(main):
        if arguments is not None:
            raise NameError("arguments were given, but the program defines no function called main")
        return
    if watch is not None and not watch.should_call():
        return
    value = main(**(arguments or {}))
    if hasattr(value, "__await__"):
        import asyncio

        async def wait(awaitable):
            return await awaitable

        value = asyncio.run(wait(value))
    try:
        Json.load()
        answer["returned"] = RawJSON((Json.dumps or encode_builtin)(value))
    except (TypeError, ValueError, RecursionError) as exc:
        raise TypeError("main returned a value that JSON cannot carry: %s" % exc) from None


def cache_source(name, source):
    """Make tracebacks and inspect show the lines of a source that has no file."""
    linecache = own_module("linecache")
    if linecache is None:
        return
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)


def report_failure(exc, answer):
    """Report an exception that ends a program. Return the exit code."""
    text = format_error(exc)
    # A program may have replaced a stream with an object without flush.
    ignore_errors(lambda: sys.stdout.flush())
    answer["failure"] = {"name": type(exc).__name__, "message": error_message(exc)[:4000], "traceback": text[-20000:]}
    hook = getattr(sys, "excepthook", None)
    if hook is not default_hook and callable(hook):
        try:
            call_hook(hook, exc)
            text = ""
        except SystemExit as end:
            code = exit_code(end)
            if code == 0:
                del answer["failure"]
            return code
        except BaseException as error:
            text = "Error in sys.excepthook:\n%s\nOriginal exception was:\n%s" % (format_error(error), text)
    ignore_errors(lambda: (sys.stderr.write(text), sys.stderr.flush()))
    if isinstance(exc, KeyboardInterrupt):
        answer["signal"] = 2  # Python ends itself by it
        return 130
    return 1


def call_hook(hook, exc):
    """Call the program's function for uncaught exceptions."""
    sys.last_exc = sys.last_value = exc
    sys.last_type, sys.last_traceback = type(exc), exc.__traceback__
    # sys.__excepthook__, which a hook may call, reads source lines from the file.
    ignore_errors(load_sibling("python_program").Program.file.write)
    hook(type(exc), exc, exc.__traceback__)


def finalize(module):
    """Exit as the interpreter does: wait for threads, run the functions of
    atexit, release the program's objects, and flush files."""
    import atexit

    threading = Shadows.loaded("threading")
    # Without threads and functions to call, the rest has no effect but takes time.
    idle = len(sys._current_frames()) == 1 and not atexit._ncallbacks() and not getattr(threading, "_threading_atexits", None)
    if not idle:
        if threading is not None:
            ignore_errors(lambda: threading._shutdown())
        ignore_errors(atexit._run_exitfuncs)
    release(module)


def release(module):
    """Release the program's objects, and flush files. Can be called repeatedly."""
    import gc
    import io

    # Running threads may use the module and would print errors.
    if len(sys._current_frames()) == 1:
        fresh = type(sys)("").__dict__
        names = [n for n in module.__dict__ if n not in fresh and n != "__builtins__"]
        for name in sorted(names, key=lambda n: not n.startswith("_")):
            module.__dict__[name] = None
        if len(names) > 1:  # __file__ always exists; without other names there is nothing to release
            gc.collect()
    for thing in gc.get_objects():
        if isinstance(thing, (io.TextIOWrapper, io.BufferedWriter)):
            ignore_errors(thing.flush)
    for stream in (sys.stdout, sys.stderr):
        ignore_errors(lambda: stream.flush())
    ignore_errors(Libraries.flush)


class Libraries:
    """The standard output of C libraries, which has a buffer of its own. Only a
    module that is not Python's can have written to it."""

    looked = 0  # the number of modules that were searched
    flush_stdout = None

    @classmethod
    def flush(cls):
        if cls.flush_stdout is None:
            if len(sys.modules) == cls.looked:
                return
            cls.looked = len(sys.modules)
            if "ctypes" not in sys.modules and not any(map(cls.foreign, list(sys.modules.values()))):
                return
            import ctypes

            library = ctypes.CDLL(None)
            # fflush(NULL) would wait for a thread that reads from another stream.
            stdout = ctypes.c_void_p.in_dll(library, "stdout")
            cls.flush_stdout = lambda: library.fflush(stdout)
        cls.flush_stdout()

    @staticmethod
    def foreign(module):
        try:
            # getattr would load a lazy module.
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except Exception:
            return False
        return isinstance(file, str) and file.endswith(".so") and "/lib-dynload/" not in file


def list_directory(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


# -- Requests -----------------------------------------------------------------


class Cells:
    """The part of the driver that is loaded with the first cell."""

    shell = None

    @classmethod
    def load(cls, channel):
        if cls.shell is None:
            # Load these before the directory of the cells is searched for modules with the same
            # names.
            for name in ("json", "linecache", "tokenize", "traceback"):
                own_module(name)
            channel.select = own_module("select")
            cls.shell = load_sibling("python_cells").open_shell(channel)
        return cls.shell


def load_sibling(name):
    """Load the module from a file in this directory. It is not in sys.modules,
    so programs cannot import it by accident."""
    if name in loaded_siblings:
        return loaded_siblings[name]
    path = HERE + "/" + name + ".py"
    module = type(sys)(name)
    module.__file__ = path
    module.driver = driver
    with open(path, encoding="utf-8") as f:
        exec(compile(f.read(), path, "exec", dont_inherit=True), module.__dict__)
    loaded_siblings[name] = module  # not earlier, because an interrupt may arrive in between
    return module


def warm_up(request, channel):
    for name in PRELOAD:
        try:
            __import__(name)
        except Exception:
            pass
    Json.load()
    if (request.get("env") or {}).get("BRIG_CELLS"):
        Cells.load(channel)
    for name in request.get("imports") or ():
        try:
            __import__(name)
        except BaseException as exc:
            channel.send({"type": "error", "name": type(exc).__name__, "value": error_message(exc), "traceback": ""})
    warm_up_programs()
    import gc

    # Existing objects live as long as the process, so the garbage collector need not examine them
    # again.
    gc.collect()
    gc.freeze()


def warm_up_programs():
    """Run a small program, so that the imports and memory pages of the first
    real program are ready."""
    real, path, argv = sys.stdout, sys.path[:], sys.argv
    try:
        with open(os.devnull, "w") as sys.stdout:
            sys.stdout.reconfigure(line_buffering=True)
            run_for_warm_up("print(6 * 7)\ndef main(n=6): return [str(n * 7)]")
            run_for_warm_up("1 / 0")
            run_for_warm_up("import os, sys\nprint(os.getpid(), file=sys.stdout)")
    finally:
        sys.stdout, sys.path[:], sys.argv = real, path, argv
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        linecache.cache.pop("main.py", None)
    list_directory(ARTIFACTS)
    os.write(1, b"")


def run_for_warm_up(source):
    """Run a source as run_program does, except for effects that cannot be
    reverted."""
    helpers = load_sibling("python_program")
    module = helpers.Program("warm_up")
    apply_environment({})
    Shadows.find(set_search_path({}))
    helpers.set_file(module, "", None)
    try:
        run_source(source, None, module, {})
    except ZeroDivisionError as exc:
        format_error(exc)
    release(module)
    helpers.Program.file = None  # a cell has no file
    Shadows.restore()
    ignore_errors(ignore_interrupts)


def serve(channel):
    channel.send({"type": "ready", "version": "%d.%d.%d" % sys.version_info[:3], "flavor": "cpython", "nonces": True})
    while True:
        if Cells.shell is not None:
            Cells.shell.idle()
        request = channel.receive()
        if request is None:
            os._exit(0)
        op = request.get("op")
        if Cells.shell is None and op in ("cell", "step"):
            channel.send({"type": "taken"})  # the load takes a while
        if op == "warm":
            warm_up(request, channel)
        elif op == "ping":
            channel.send({"type": "pong"})
        elif op == "park":
            channel.park(request["cwd"])
        elif op == "chdir":
            change_directory(request["cwd"])
        elif op == "renew":
            load_sibling("python_renew").renew()
        elif op == "cell":
            Cells.load(channel).cell(request)
        elif op == "step":
            set_limits(request.get("limits"))
            Cells.load(channel).step(request)
        elif op == "program":
            run_program(request, channel)


driver = sys.modules["__main__"]
loaded_siblings = {}
default_hook = sys.excepthook
set_sigint_handler(ignore_sigint)
sys.unraisablehook = resend_interrupt
serve(Channel(CHANNEL))

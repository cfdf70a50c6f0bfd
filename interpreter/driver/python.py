# The Python driver. It reads orders from descriptor 3 and executes them. The
# other python_*.py files in this directory, such as python_cells.py, belong to
# it.
#
# Imports before the message "ready" delay every sandbox, so this file uses
# only modules that the interpreter has already loaded. It also runs on Pythons
# without json, traceback or threading, such as Debian's python3-minimal.
import os
import sys

CHANNEL = 3
HERE = os.path.dirname(os.path.abspath(__file__))
ARTIFACTS = "/workspace/artifacts"

# Modules that programs are likely to import and that need little memory.
LIKELY = (
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


def plain(value):
    """Return the JSON of a value of built-in types."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is int or kind is float and value - value == 0:
        return repr(value)
    if kind in (list, tuple):
        return "[" + ",".join([plain(v) for v in value]) + "]"
    if kind is dict and all(type(k) is str for k in value):
        return "{" + ",".join([quote(k) + ":" + plain(v) for k, v in value.items()]) + "}"
    raise TypeError("Object of type %s is not JSON serializable" % kind.__name__)


class Encoded(str):
    """Text that is already JSON. It is inserted into a message unchanged."""


def decode(text):
    """Decode a JSON text from the host without the module json."""
    # Only the escape of a slash has a different meaning in Python.
    if "\\/" in text:
        text = text.replace("\\\\", "\0").replace("\\/", "/").replace("\0", "\\\\")
    value = eval(text, {"__builtins__": {}, "true": True, "false": False, "null": None})
    return paired(value) if "\\ud" in text.lower() else value


def paired(value):
    """Return the value with surrogate pairs replaced by their characters."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [paired(v) for v in value]
    if isinstance(value, dict):
        return {paired(k): paired(v) for k, v in value.items()}
    return value


class Json:
    """The module json, once it is loaded. It is faster and supports more
    types. The driver keeps its own references, so programs that change the
    module do not affect it."""

    loads = dumps = quote = None

    @classmethod
    def load(cls):
        if cls.loads is None:
            try:
                import json
            except ImportError:
                return
            cls.loads = json.JSONDecoder().decode
            cls.dumps = json.JSONEncoder(allow_nan=False).encode
            cls.quote = json.encoder.encode_basestring_ascii


def encode(value):
    if type(value) is Encoded:
        return str(value)
    if type(value) is str:
        return (Json.quote or quote)(value)
    if type(value) is dict:
        return "{" + ",".join([quote(k) + ":" + encode(v) for k, v in value.items()]) + "}"
    return plain(value)


# -- The channel --------------------------------------------------------------


class Channel:
    """The socket to the host. Both sides send one JSON object per line. Messages
    repeat the nonce of their order, so that the host knows lines that a program
    writes to the socket."""

    nonce = ""  # of the current order; None after its last message

    def __init__(self, fd):
        import _thread

        os.set_inheritable(fd, False)
        self.fd = self.out = fd
        self.rest = b""
        self.held = b""
        self.lock = _thread.allocate_lock()
        self.main = _thread.get_ident()
        self.ident = _thread.get_ident
        os.register_at_fork(after_in_child=self.forsake)

    def forsake(self):
        """Close the channel in a forked child. Only the parent uses it."""
        for fd in {self.fd, self.out}:
            try:
                os.close(fd)
            except OSError:
                pass
        self.fd = self.out = -1

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
        self.say({"type": "parked"})

    def hold(self, message):
        """Buffer a message, and send it together with the next one."""
        self.held += self.line(encode(message), message["type"])

    def line(self, text, kind):
        """Return a message with the nonce, from its JSON, which begins with its type."""
        at = len(kind) + len('{"type":""')
        return ('%s,"nonce":%s%s\n' % (text[:at], encode(self.nonce), text[at:])).encode("ascii")

    def say(self, message, lost=1):
        """Send a message to the host. If the host is gone, exit with the code
        lost. A thread may be too late for a message of its cell."""
        if self.fd < 0:
            return
        kind, text = message["type"], encode(message)
        quiet = Quiet() if not deaf and self.ident() == self.main else None
        place = standing() if kind == "display" else ""
        try:
            with self.lock:
                held, self.held = self.held, b""
                body = self.line(text, kind) if self.nonce is not None else b""
                data = memoryview(held + place.encode("ascii") + body) if body else b""
                while data:
                    data = data[os.write(self.out, data):]
                if kind in ("end", "pong"):
                    self.nonce = None
        except OSError:
            os._exit(lost)
        if quiet:
            quiet.over()

    def next(self):
        """Return the next order, or None at the end of the channel."""
        parts = [self.rest]
        while b"\n" not in parts[-1]:
            part = os.read(self.fd, 1 << 16)
            if not part:
                return None
            parts.append(part)
        line, _, self.rest = b"".join(parts).partition(b"\n")
        text = line.decode("utf-8")
        if '"arguments"' in text or '"state"' in text:
            Json.load()
        order = (Json.loads or decode)(text)
        self.nonce = order.get("nonce", "")
        return order


def standing():
    """Return the line that states the position of a message in the outputs:
    the number of bytes of each output that are unread. Later output follows
    the message."""
    try:
        import fcntl

        unread = [fcntl.ioctl(fd, 0x541B, bytes(4)) for fd in (1, 2)]  # FIONREAD
        return "=%d,%d\n" % tuple([int.from_bytes(n, sys.byteorder) for n in unread])
    except Exception:
        return ""  # the program has closed an output, or Python has no fcntl


# -- Interrupts ---------------------------------------------------------------


def ignore(signum, frame):
    """Handle SIGINT without an effect. Child processes would inherit SIG_IGN."""


def on_interrupt(handler):
    """Set the handler of SIGINT. A pending SIGINT is handled before this
    returns."""
    import _signal

    global deaf
    deaf = False
    before = _signal.signal(_signal.SIGINT, handler)
    deaf = handler is ignore
    return before


deaf = False  # whether SIGINT is ignored now; it saves system calls


class Quiet:
    """Delays SIGINT, so that no message is sent partially."""

    def __init__(self):
        self.struck = False
        self.before = on_interrupt(self.strike)

    def strike(self, signum, frame):
        self.struck = True

    def over(self):
        on_interrupt(self.before)
        if self.struck and callable(self.before):
            self.before(2, None)


def strike_again(unraisable, others=sys.unraisablehook):
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


def hush():
    """Ignore SIGINT from now on, including a pending one."""
    while True:
        try:
            return on_interrupt(ignore)
        except KeyboardInterrupt:
            pass


interrupted = None  # the thread in which SIGINT currently raises KeyboardInterrupt


def interruptible(run):
    """Call run so that SIGINT interrupts it, and return the exception that it
    raised. An earlier interrupt has no effect after this returns."""
    import _signal
    import _thread

    global interrupted
    error = None
    while True:
        try:
            if run is not None:
                step, run = run, None
                interrupted = _thread.get_ident()
                on_interrupt(_signal.default_int_handler)
                step()
            on_interrupt(ignore)
            interrupted = None
            return error
        except BaseException as exc:
            error = error or exc


# -- Errors -------------------------------------------------------------------


def cut(trace):
    """Return the traceback without the driver's frames and the asyncio frames
    that they called."""
    while trace is not None and ours(trace):
        trace = trace.tb_next
        while trace is not None and "/asyncio/" in filename(trace):
            trace = trace.tb_next
    here = trace
    while here is not None and here.tb_next is not None:
        if ours(here.tb_next):
            here.tb_next = here.tb_next.tb_next
        else:
            here = here.tb_next
    return trace


def ours(trace):
    return filename(trace).startswith(HERE + "/python")


def filename(trace):
    return trace.tb_frame.f_code.co_filename


def explain(exc):
    """Format an exception as Python does, without the driver's frames."""
    seen, todo = set(), [exc]
    while todo:
        e = todo.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        e.__traceback__ = cut(e.__traceback__)
        todo += [e.__cause__, e.__context__]
    try:
        import traceback
    except ImportError:
        return bare(exc)
    return "".join(traceback.format_exception(type(exc), exc, exc.__traceback__))


def bare(exc):
    """Format an exception without the module traceback."""
    lines = ["Traceback (most recent call last):\n"]
    trace = exc.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append('  File "%s", line %d, in %s\n' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    text = message(exc)
    lines.append(type(exc).__name__ + (": " + text if text else "") + "\n")
    return "".join(lines)


def message(exc):
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
    attempt(lambda: print(exc.code, file=sys.stderr))
    return 1


def attempt(step):
    """Call step and ignore exceptions, because they are errors of the program.
    An interrupt is for the cell, and ends it."""
    try:
        step()
    except KeyboardInterrupt:
        import _thread

        if interrupted == _thread.get_ident():
            raise
    except BaseException:
        pass


# -- Imports ------------------------------------------------------------------


class Watcher:
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
            attempt(lambda: act(module))

        spec.loader.exec_module = exec_module
        return spec


def watch(actions):
    """Call functions after the modules with the given names were imported."""
    sys.meta_path.insert(0, Watcher(actions))


def fork_by_default():
    """Make multiprocessing fork, as before Python 3.14. Its other start
    methods import the program again, for which most programs are not written,
    and a cell has no file."""

    def context(module):
        module._default_context = module.DefaultContext(module._concrete_contexts["fork"])

    if sys.version_info >= (3, 14):
        watch({"multiprocessing.context": context})


# -- Programs -----------------------------------------------------------------


def enter(order):
    """Set the directory, environment and search path from an order. Return the
    previous environment."""
    before = {}
    for key, value in (order.get("env") or {}).items():
        before[key] = os.environ.get(key)
        os.environ[key] = value
    if before:
        settle(before)
    if order.get("cwd"):
        os.chdir(order["cwd"])
    return before


def restore(before):
    """Restore the environment that enter changed."""
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    if before:
        settle(before)


def settle(keys):
    """Apply variables that Python has already read."""
    if "TZ" in keys:
        import time

        time.tzset()


def confine(limits):
    """Set resource limits, but never above the current ones."""
    if not limits:
        return
    try:
        import resource
    except ImportError:
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


def become(name, kind=type(sys)):
    """Create a module and register it under its name."""
    module = kind(name)
    module.__builtins__ = __builtins__
    sys.modules[name] = module
    return module


def change_directory(path):
    """Change to a working directory, as if the interpreter had been started
    there."""
    before = os.getcwd()
    os.chdir(path)
    sys.path[:] = [path if p == before else p for p in sys.path]


def search_path(env):
    """Set the import path as if Python had been started now, without the
    driver's directory."""
    named = [p for p in (env or {}).get("PYTHONPATH", "").split(":") if p]
    sys.path[:] = [os.getcwd()] + named + [p for p in sys.path if p != HERE]


def program(order, channel):
    """Run a whole program and exit as Python does."""
    import _signal

    arguments = order.get("arguments")
    answer = {"type": "end"}
    code = 0
    tray = None
    on_interrupt(_signal.default_int_handler)
    sys.argv = ["main.py"]
    own = sibling("python_program")
    module = become("__main__" if arguments is None else "main", own.Program)
    sys.modules["__main__"] = module
    try:
        enter(order)
        search_path(order.get("env"))
        own.give_file(module, order.get("code", ""), channel)
        if order.get("artifacts"):
            tray = lay_out("artifacts")
        confine(order.get("limits"))
        fork_by_default()
        # Each line is sent when it is printed, so it is not lost at a timeout.
        sys.stdout.reconfigure(line_buffering=True)
        run(order.get("code", ""), arguments, module, answer)
    except SystemExit as exc:
        code = exit_code(exc)
    except BaseException as exc:
        code = 1
        fail(exc, answer)
    leave(module)
    attempt(hush)
    answer["code"] = code
    answer["artifacts"] = bool(listing(ARTIFACTS))
    if tray and tray[0] == os.getpid():
        attempt(lambda: os.rmdir(tray[1]))
    # The host waits until the last process has closed the output. It handles the
    # message while this process closes its own.
    answer["closed"] = True
    attempt(lambda: channel.say(answer, lost=code))
    attempt(lambda: os.close(1))
    attempt(lambda: os.close(2))
    os._exit(code)


def lay_out(name):
    """Create a directory that programs expect. Return this process and the
    path. The process removes the directory if it is still empty at its end."""
    try:
        os.mkdir(name)
        return os.getpid(), os.path.abspath(name)
    except OSError:
        return None  # it exists, or this user may not create it


def run(source, arguments, module, answer):
    """Run the source. Call main if the order has arguments, or if main is
    defined and has not been entered when the program would end."""
    source = source[1:] if source.startswith("\ufeff") else source
    remember("main.py", source)
    watch = None
    if arguments is None and "main" in source:
        watch = sibling("python_program").Watch(source)
        code = watch.code
    else:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    exec(code, module.__dict__)
    main = module.__dict__.get("main")
    if not callable(main):
        if arguments is not None:
            raise NameError("arguments were given, but the program defines no function called main")
        return
    if watch is not None and not watch.due():
        return
    value = main(**(arguments or {}))
    if hasattr(value, "__await__"):
        import asyncio

        async def wait(awaitable):
            return await awaitable

        value = asyncio.run(wait(value))
    try:
        Json.load()
        answer["returned"] = Encoded((Json.dumps or plain)(value))
    except (TypeError, ValueError, RecursionError) as exc:
        raise TypeError("main returned a value that JSON cannot carry: %s" % exc) from None


def remember(name, source):
    """Make tracebacks and inspect show the lines of a source that has no file."""
    try:
        import linecache
    except ImportError:
        return
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)


def fail(exc, answer):
    text = explain(exc)
    # A program may have replaced a stream with an object without flush.
    attempt(lambda: sys.stdout.flush())
    attempt(lambda: (sys.stderr.write(text), sys.stderr.flush()))
    answer["failure"] = {"name": type(exc).__name__, "message": message(exc)[:4000], "traceback": text[-20000:]}


def leave(module):
    """Exit as the interpreter does: wait for threads, run the functions of
    atexit, release the program's objects, and flush files."""
    import atexit

    threading = sys.modules.get("threading")
    if threading is not None:
        attempt(threading._shutdown)
    attempt(atexit._run_exitfuncs)
    let_go(module)


def let_go(module):
    """The part of leave that can be repeated."""
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
            attempt(thing.flush)
    for stream in (sys.stdout, sys.stderr):
        attempt(lambda: stream.flush())


def listing(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


# -- Orders -------------------------------------------------------------------


class Cells:
    """The part of the driver that is loaded with the first cell."""

    shell = None

    @classmethod
    def load(cls, channel):
        if cls.shell is None:
            cls.shell = sibling("python_cells").open_shell(channel)
        return cls.shell


def sibling(name):
    """Load the module from a file in this directory. It is not in sys.modules,
    so programs cannot import it by accident."""
    if name in siblings:
        return siblings[name]
    path = HERE + "/" + name + ".py"
    module = type(sys)(name)
    module.__file__ = path
    module.driver = driver
    with open(path, encoding="utf-8") as f:
        exec(compile(f.read(), path, "exec", dont_inherit=True), module.__dict__)
    siblings[name] = module  # not earlier, because an interrupt may arrive in between
    return module


def warm(order, channel):
    for name in LIKELY:
        try:
            __import__(name)
        except Exception:
            pass
    Json.load()
    if (order.get("env") or {}).get("BRIG_CELLS"):
        Cells.load(channel)
    rehearse()
    import gc

    # Existing objects live as long as the process. The garbage collector need
    # not examine them again.
    gc.collect()
    gc.freeze()


def rehearse():
    """Run a small program, so that the imports and memory pages of the first
    real program are ready."""
    real, path, argv = sys.stdout, sys.path[:], sys.argv
    try:
        with open(os.devnull, "w") as sys.stdout:
            sys.stdout.reconfigure(line_buffering=True)
            play("print(6 * 7)\ndef main(n=6): return [str(n * 7)]")
            play("1 / 0")
            play("import os, sys\nprint(os.getpid(), file=sys.stdout)")
    finally:
        sys.stdout, sys.path[:], sys.argv = real, path, argv
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        linecache.cache.pop("main.py", None)
    listing(ARTIFACTS)
    os.write(1, b"")


def play(source):
    """Process a source as program does, as far as the effects can be reverted."""
    own = sibling("python_program")
    module = own.Program("rehearsal")
    enter({})
    search_path({})
    own.give_file(module, "", None)
    try:
        run(source, None, module, {})
    except ZeroDivisionError as exc:
        explain(exc)
    let_go(module)
    attempt(hush)


def serve(channel):
    channel.say({"type": "ready", "version": "%d.%d.%d" % sys.version_info[:3], "flavor": "cpython", "nonces": True})
    while True:
        if Cells.shell is not None:
            Cells.shell.idle()
        order = channel.next()
        if order is None:
            os._exit(0)
        op = order.get("op")
        if Cells.shell is None and op in ("cell", "step"):
            channel.say({"type": "taken"})  # the load takes a while
        if op == "warm":
            warm(order, channel)
        elif op == "ping":
            channel.say({"type": "pong"})
        elif op == "park":
            channel.park(order["cwd"])
        elif op == "chdir":
            change_directory(order["cwd"])
        elif op == "renew":
            sibling("python_renew").renew()
        elif op == "cell":
            Cells.load(channel).cell(order)
        elif op == "step":
            confine(order.get("limits"))
            Cells.load(channel).step(order)
        elif op == "program":
            program(order, channel)


driver = sys.modules["__main__"]
siblings = {}
on_interrupt(ignore)
sys.unraisablehook = strike_again
serve(Channel(CHANNEL))

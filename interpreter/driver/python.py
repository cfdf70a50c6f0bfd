# The Python driver: takes orders on descriptor 3 and carries them out, cells
# with python_cells.py and its kin, which lie beside this file.
#
# Whatever is imported before "ready" delays every sandbox, so this file lives
# on what the interpreter has loaded by itself. It runs on Pythons without json,
# traceback or threading: the smallest ones of Debian have none of them.
import os
import sys

CHANNEL = 3
HERE = os.path.dirname(os.path.abspath(__file__))
ARTIFACTS = "/workspace/artifacts"

# What programs are likely to use, for as long as it costs little memory.
LIKELY = (
    "json re traceback linecache ast opcode threading subprocess collections datetime"
    " math random time io types functools itertools typing tempfile shutil resource atexit gc"
).split()


# -- JSON, by hand while there is no json ------------------------------------


def quote(text):
    """A str in JSON, in ASCII. Lone surrogates are escaped like any other."""
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
    """JSON of a value that is made of Python's own simplest types."""
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
    """JSON already, to be put into a message as it is."""


def decode(text):
    """A JSON text of the host as Python values, without json."""
    # Only a slash's escape means something else in Python.
    if "\\/" in text:
        text = text.replace("\\\\", "\0").replace("\\/", "/").replace("\0", "\\\\")
    value = eval(text, {"__builtins__": {}, "true": True, "false": False, "null": None})
    return paired(value) if "\\ud" in text.lower() else value


def paired(value):
    """The value with surrogate pairs as the characters that they mean."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [paired(v) for v in value]
    if isinstance(value, dict):
        return {paired(k): paired(v) for k, v in value.items()}
    return value


class Json:
    """JSON by json, when it is loaded: it is quicker and takes more types. The
    driver's own references, so that what a program does to json is its own."""

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
    """The socket to the host: JSON objects both ways, one to a line."""

    def __init__(self, fd):
        import _thread

        os.set_inheritable(fd, False)
        self.fd = fd
        self.rest = b""
        self.held = b""
        self.lock = _thread.allocate_lock()
        self.main = _thread.get_ident()
        self.ident = _thread.get_ident
        os.register_at_fork(after_in_child=self.forsake)

    def forsake(self):
        """In a forked child: the channel is the parent's alone."""
        try:
            os.close(self.fd)
        except OSError:
            pass
        self.fd = -1

    def hold(self, message):
        """Say a message with the next one, which comes in a moment."""
        self.held += (encode(message) + "\n").encode("ascii")

    def say(self, message, lost=1):
        """Tell the host, or exit with the code lost when there is none."""
        if self.fd < 0:
            return
        body = (encode(message) + "\n").encode("ascii")
        quiet = Quiet() if not deaf and self.ident() == self.main else None
        place = standing() if message["type"] == "display" else ""
        held, self.held = self.held, b""
        data = memoryview(held + place.encode("ascii") + body)
        try:
            with self.lock:
                while data:
                    data = data[os.write(self.fd, data):]
        except OSError:
            os._exit(lost)
        if quiet:
            quiet.over()

    def next(self):
        """The next order, or None when there will be none."""
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
        return (Json.loads or decode)(text)


def standing():
    """The line that tells of a message where in the outputs it stands: after how
    much of what nobody has read yet. What is written next is not before it."""
    try:
        import fcntl

        unread = [fcntl.ioctl(fd, 0x541B, bytes(4)) for fd in (1, 2)]  # FIONREAD
        return "=%d,%d\n" % tuple([int.from_bytes(n, sys.byteorder) for n in unread])
    except Exception:
        return ""  # an output that the program has closed, or a Python without fcntl


# -- Interrupts ---------------------------------------------------------------


def ignore(signum, frame):
    """Instead of SIG_IGN, which everything that is started would inherit."""


def on_interrupt(handler):
    """Set what SIGINT does. One that is pending strikes here at the latest."""
    import _signal

    global deaf
    deaf = False
    before = _signal.signal(_signal.SIGINT, handler)
    deaf = handler is ignore
    return before


deaf = False  # SIGINT does nothing now: each call that says so costs


class Quiet:
    """A while in which SIGINT waits, so that half a message is never said."""

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
    """Send an interrupt again that was raised where Python lets go of it, such as
    in a callback of an import: nobody has heard of it."""
    import _thread
    import time

    def later():
        time.sleep(0.02)  # what has let go of it is over by then
        os.kill(os.getpid(), 2)

    if unraisable.exc_type is not KeyboardInterrupt:
        return others(unraisable)
    _thread.start_new_thread(later, ())


def hush():
    """Ignore SIGINT from here on, one that is pending included."""
    while True:
        try:
            return on_interrupt(ignore)
        except KeyboardInterrupt:
            pass


def interruptible(run):
    """Call run so that SIGINT interrupts it, and return what it raised. Once
    this returns, no interrupt that came before can strike."""
    import _signal

    error = None
    while True:
        try:
            if run is not None:
                step, run = run, None
                on_interrupt(_signal.default_int_handler)
                step()
            on_interrupt(ignore)
            return error
        except BaseException as exc:
            error = error or exc


# -- Errors -------------------------------------------------------------------


def cut(trace):
    """The traceback without the frames of drivers, and without those of asyncio
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
    """An exception as Python prints it, the driver's frames cut."""
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
    """What explain says where there is no traceback."""
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
    """The code with which Python ends on a SystemExit."""
    if exc.code is None:
        return 0
    if isinstance(exc.code, int):
        return exc.code & 0xFF
    attempt(lambda: print(exc.code, file=sys.stderr))
    return 1


def attempt(step):
    """Call step, whatever it raises: what is broken here is the program's own."""
    try:
        step()
    except BaseException:
        pass


# -- Imports ------------------------------------------------------------------


class Watcher:
    """A finder of modules that finds none: it acts on some as they come in."""

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
    """Act on modules, by their names, once they were imported."""
    sys.meta_path.insert(0, Watcher(actions))


def fork_by_default():
    """Let multiprocessing fork, as it did before Python 3.14: its other ways
    read the program from a file, and there is none."""

    def context(module):
        module._default_context = module.DefaultContext(module._concrete_contexts["fork"])

    if sys.version_info >= (3, 14):
        watch({"multiprocessing.context": context})


# -- Programs -----------------------------------------------------------------


def enter(order):
    """Make the process what the order says: directory, environment, search
    path. Return the environment that was."""
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
    """Take back what enter did to the environment."""
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    if before:
        settle(before)


def settle(keys):
    """Act on variables that Python itself has read already."""
    if "TZ" in keys:
        import time

        time.tzset()


def confine(limits):
    """Take on resource limits, never above those that are there."""
    if not limits:
        return
    try:
        import resource
    except ImportError:
        # The smallest Pythons leave it out; util-linux is everywhere on Debian.
        options = ["--%s=%d:%d" % (name, n, n) for name, n in limits.items()]
        os.spawnvp(os.P_WAIT, "prlimit", ["prlimit", "--pid", str(os.getpid())] + options)
        return
    for name, n in limits.items():
        which = getattr(resource, "RLIMIT_" + name.upper())
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            n = min(n, hard)
        resource.setrlimit(which, (n, n))


def become(name):
    """Make a new module the one that is known by name."""
    module = type(sys)(name)
    module.__builtins__ = __builtins__
    sys.modules[name] = module
    return module


def change_directory(path):
    """Be where the interpreter would be had it been started there."""
    before = os.getcwd()
    os.chdir(path)
    sys.path[:] = [path if p == before else p for p in sys.path]


def search_path(env):
    """Let imports look where they would had Python been started now, and never
    among the drivers."""
    named = [p for p in (env or {}).get("PYTHONPATH", "").split(":") if p]
    sys.path[:] = [os.getcwd()] + named + [p for p in sys.path if p != HERE]


def program(order, channel):
    """Run a whole program and exit as it does."""
    import _signal

    arguments = order.get("arguments")
    answer = {"type": "end"}
    code = 0
    tray = None
    on_interrupt(_signal.default_int_handler)
    sys.argv = ["main.py"]
    module = become("__main__" if arguments is None else "main")
    sys.modules["__main__"] = module
    module.__file__ = "main.py"
    try:
        enter(order)
        search_path(order.get("env"))
        if order.get("artifacts"):
            tray = lay_out("artifacts")
        confine(order.get("limits"))
        fork_by_default()
        # Lines appear when they are printed, also when time runs out.
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
    attempt(lambda: channel.say(answer, lost=code))
    os._exit(code)


def lay_out(name):
    """Make a folder that programs count on. Return whose it is to take away, if
    nothing was put there."""
    try:
        os.mkdir(name)
        return os.getpid(), os.path.abspath(name)
    except OSError:
        return None  # it is there, or nobody may write here


def run(source, arguments, module, answer):
    """Run the source, and main with arguments when they were given, or when
    main is defined and the program does not use it itself."""
    source = source[1:] if source.startswith("\ufeff") else source
    remember("main.py", source)
    code = compile(source, "main.py", "exec", dont_inherit=True)
    exec(code, module.__dict__)
    main = module.__dict__.get("main")
    if not callable(main):
        if arguments is not None:
            raise NameError("arguments were given, but the program defines no function called main")
        return
    if arguments is None and uses_main(code):
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
    """Let tracebacks and inspect show the lines of a source without a file."""
    try:
        import linecache
    except ImportError:
        return
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)


def uses_main(code):
    """Tell whether module-level code reads the name main, as scripts do."""
    import opcode

    load, extend = opcode.opmap["LOAD_NAME"], opcode.EXTENDED_ARG
    arg = 0
    for i in range(0, len(code.co_code), 2):
        op, low = code.co_code[i], code.co_code[i + 1]
        arg = arg << 8 | low
        if op == extend:
            continue
        if op == load and code.co_names[arg] == "main":
            return True
        arg = 0
    return False


def fail(exc, answer):
    text = explain(exc)
    # What a program has put in a stream's place need not have a flush.
    attempt(lambda: sys.stdout.flush())
    attempt(lambda: (sys.stderr.write(text), sys.stderr.flush()))
    answer["failure"] = {"name": type(exc).__name__, "message": message(exc)[:4000], "traceback": text[-20000:]}


def leave(module):
    """End as the interpreter does: wait for threads, run what atexit was given,
    let go of the program's objects and flush what is left in files."""
    import atexit

    threading = sys.modules.get("threading")
    if threading is not None:
        attempt(threading._shutdown)
    attempt(atexit._run_exitfuncs)
    let_go(module)


def let_go(module):
    """The part of leave that can be done again."""
    import gc
    import io

    # Threads that still run may use the module: they would only complain.
    if len(sys._current_frames()) == 1:
        fresh = type(sys)("").__dict__
        names = [n for n in module.__dict__ if n not in fresh and n != "__builtins__"]
        for name in sorted(names, key=lambda n: not n.startswith("_")):
            module.__dict__[name] = None
        if len(names) > 1:  # __file__ is there always; without more there is nothing to let go
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
    """The side of the driver that is loaded with the first cell."""

    shell = None

    @classmethod
    def load(cls, channel):
        if cls.shell is None:
            cls.shell = sibling("python_cells").open_shell(channel)
        return cls.shell


def sibling(name):
    """The module in a file beside this one. It is not known to import, so that
    programs cannot meet it by accident."""
    if name in siblings:
        return siblings[name]
    path = HERE + "/" + name + ".py"
    module = type(sys)(name)
    module.__file__ = path
    module.driver = driver
    with open(path, encoding="utf-8") as f:
        exec(compile(f.read(), path, "exec", dont_inherit=True), module.__dict__)
    siblings[name] = module  # not earlier: an interrupt may have come between
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

    # What is here now lives as long as the process: no use looking at it again.
    gc.collect()
    gc.freeze()


def rehearse():
    """Go where a program goes, so that the first one finds every import made
    and every page in memory."""
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
    """Do with a source what program does, as far as that can be undone."""
    module = type(sys)("rehearsal")
    module.__file__ = "main.py"
    enter({})
    search_path({})
    try:
        run(source, None, module, {})
    except ZeroDivisionError as exc:
        explain(exc)
    let_go(module)
    attempt(hush)


def serve(channel):
    channel.say({"type": "ready", "version": "%d.%d.%d" % sys.version_info[:3], "flavor": "cpython"})
    while True:
        if Cells.shell is not None:
            Cells.shell.idle()
        order = channel.next()
        if order is None:
            os._exit(0)
        op = order.get("op")
        if op == "warm":
            warm(order, channel)
        elif op == "ping":
            channel.say({"type": "pong", "nonce": order.get("nonce", "")})
        elif op == "chdir":
            change_directory(order["cwd"])
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

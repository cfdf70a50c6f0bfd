# The file of a program, and the call of its main function. The driver loads this
# module with the first program; `driver` is the module python.py.
import _thread
import os
import sys

MARK = "brig: main was entered"
Namespace = type(sys.implementation)

# -- The file -----------------------------------------------------------------

# A source without these words cannot name its own file. Code outside the
# program gets the name from the module __main__, see Program.
NAMING = (
    "__file__", "argv", "main.py", "co_filename", "getfile", "getsourcefile", "inspect", "runpy",
    "globals", "vars", "import main", "from main", "import_module",
)


NAMES = ["main.py"] + ["main-%d.py" % n for n in range(1, 10)]


def names_file(source):
    """Report whether the code of a program may use its own file."""
    return any(word in source for word in NAMING)


class File:
    """The file of a program, main.py in the directory in which it started. Most
    programs never use it, and a file costs more than a short program, so it is
    written only when code reads its name."""

    written = announced = False
    lock = _thread.allocate_lock()

    def __init__(self, source, channel):
        self.source = source
        self.channel = channel
        self.folder = sys.path[0]  # the working directory, see set_search_path
        self.path = self.folder.rstrip("/") + "/main.py"

    def write(self):
        """Write the file once. Another file is never replaced."""
        with self.lock:
            if not self.written:
                self.written = True
                self.write_file(self.source.encode("utf-8", "surrogatepass"))
        return self.path

    def announce(self):
        """Report to the host where a forked process would write the file,
        because that process cannot report it."""
        if self.written or self.announced:
            return
        self.announced = True
        data = self.source.encode("utf-8", "surrogatepass")
        for name in NAMES:
            path = os.path.join(self.folder, name)
            if not os.path.lexists(path):
                self.channel.send({"type": "file", "path": path})
                return
            if has_content(path, data):
                return  # it is a file of the user

    def write_file(self, data):
        for folder in (self.folder, "/tmp/.brig-program-%d" % os.getpid()):
            try:
                if folder != self.folder:
                    self.link_all(folder)
                for name in NAMES:
                    path = os.path.join(folder, name)
                    if self.create(path, data) or has_content(path, data):
                        self.path = path
                        if sys.argv[:1] == ["main.py"]:
                            sys.argv[0] = name if folder == self.folder else path
                        return
            except OSError:
                pass  # this user may not write here, or the disk is full

    def link_all(self, folder):
        """Make a directory with the files of the working directory, which this
        user may not write to. Programs look for files beside their own."""
        os.mkdir(folder, 0o700)
        for name in os.listdir(self.folder):
            os.symlink(os.path.join(self.folder, name), os.path.join(folder, name))

    def create(self, path, data):
        """Create the file. Return False if the path exists."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left):]
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        # A workspace must not keep the file.
        self.channel.send({"type": "file", "path": path})
        return True


def has_content(path, data):
    """Report whether a file has this content, because the program may be a file
    of the workspace."""
    try:
        with open(path, "rb") as f:
            return f.read(len(data) + 1) == data
    except OSError:
        return False


class Program(type(sys)):
    """The module of a program. It writes the file when code gets its name from
    the module, as multiprocessing does."""

    file = None

    @property
    def __file__(self):
        if "__file__" not in self.__dict__:
            raise AttributeError("module %r has no attribute '__file__'" % self.__name__)
        if self.__dict__["__file__"] == Program.file.path and not Program.file.written:
            self.__dict__["__file__"] = Program.file.write()
        return self.__dict__["__file__"]

    @__file__.setter
    def __file__(self, path):
        self.__dict__["__file__"] = path


Program.__name__ = Program.__qualname__ = "module"
Program.__module__ = "builtins"


def set_file(module, source, channel):
    """Give a program its file, and write it if the program can name it."""
    Program.file = File(source, channel)
    module.__dict__["__file__"] = Program.file.path
    if names_file(source):
        module.__file__ = Program.file.write()


# -- The call of main ---------------------------------------------------------


class Mark(Namespace):
    """A constant in the code of main, which sets `entered`."""

    __hash__ = object.__hash__

    def __reduce__(self):
        return Namespace, ()  # for processes without the driver


forks = []  # an item for each fork of this process
os.register_at_fork(before=lambda: Program.file and Program.file.announce(), after_in_parent=lambda: forks.append(None))


class MainTracker:
    """Observes whether a program has entered its function main."""

    def __init__(self, source):
        self.mark = Mark(entered=False)
        self.decorated = False  # main has decorators, which may keep it
        self.forks = len(forks)
        self.children = children_time()
        tree = compile(source, "main.py", "exec", 0x400, True)  # PyCF_ONLY_AST
        self.marked = self.instrument(tree.body)
        self.code = compile(tree, "main.py", "exec", dont_inherit=True)
        if self.marked:
            self.code = self.insert_mark(self.code)

    def instrument(self, body):
        """Mark the functions main in the statements at the top level. Report
        whether there is one."""
        found = False
        for node in body:
            kind = type(node).__name__
            if kind in ("FunctionDef", "AsyncFunctionDef"):
                if node.name == "main":
                    self.decorated = self.decorated or bool(node.decorator_list)
                    mark_function(node)
                    found = True
                continue
            if kind == "ClassDef":
                continue
            if kind in ("Assign", "AnnAssign") and type(node.value).__name__ == "Lambda":
                if any(getattr(t, "id", "") == "main" for t in getattr(node, "targets", None) or [node.target]):
                    mark_lambda(node.value)
                    found = True
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner = getattr(node, name, None)
                if isinstance(inner, list):
                    found = self.instrument(inner) or found
        return found

    def insert_mark(self, code):
        """Return the code with the mark in the place of its name."""
        consts = []
        for const in code.co_consts:
            if type(const) is str and const == MARK:
                const = self.mark
            elif type(const) is type(code):
                const = self.insert_mark(const)
            consts.append(const)
        return code.replace(co_consts=tuple(consts))

    def should_call(self):
        """Report whether the driver must call main. If other code can still call
        it, first wait for threads, and run the functions of atexit."""
        referred = refers_to_main(self.code, self.mark)
        if not self.marked:
            return not referred  # main is not a function of this source
        if self.mark.entered:
            return False
        if not referred and not self.decorated:
            return True
        self.wait_for_threads()
        if not self.mark.entered:
            import atexit

            atexit._run_exitfuncs()
        # Another process of the program may have entered main.
        elsewhere = len(forks) > self.forks or children_time() > self.children
        return not self.mark.entered and not (referred and elsewhere)

    def wait_for_threads(self):
        threading = driver.Shadows.loaded("threading")
        while threading is not None and not self.mark.entered and has_busy_threads(threading):
            import time

            time.sleep(0.005)


def has_busy_threads(threading):
    """Report whether threads run for which Python waits at its end. An idle
    thread of a pool does not count: main may use the pool."""
    pool = sys.modules.get("concurrent.futures.thread")
    workers = getattr(pool, "_threads_queues", {})
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon:
            continue
        frame = frames.get(thread.ident)
        idle = thread in workers and workers[thread].empty()
        if not idle or frame is None or frame.f_code.co_name != "_worker":
            return True
    return False


def children_time():
    """Return the CPU time of the child processes that have ended."""
    resource = driver.own_module("resource")
    if resource is None:
        return sum(os.times()[2:4])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def mark_function(function):
    """Make the function set `entered` of the mark. The documentation remains
    the first statement."""
    import _ast

    body = function.body
    first = body[0]
    documented = isinstance(first, _ast.Expr) and isinstance(first.value, _ast.Constant) and type(first.value.value) is str
    at = body[1] if documented and len(body) > 1 else first
    place = {"lineno": at.lineno, "col_offset": at.col_offset, "end_lineno": at.lineno, "end_col_offset": at.col_offset}
    target = _ast.Attribute(_ast.Constant(MARK, **place), "entered", _ast.Store(), **place)
    body.insert(int(documented), _ast.Assign([target], _ast.Constant(True, **place), **place))


def mark_lambda(function):
    """Like mark_function. A lambda has no statements, so the mark is an operand."""
    import _ast

    at = function.body
    place = {"lineno": at.lineno, "col_offset": at.col_offset, "end_lineno": at.lineno, "end_col_offset": at.col_offset}
    method = _ast.Attribute(_ast.Constant(MARK, **place), "__setattr__", _ast.Load(), **place)
    call = _ast.Call(method, [_ast.Constant("entered", **place), _ast.Constant(True, **place)], [], **place)
    function.body = _ast.BoolOp(_ast.Or(), [call, at], **place)


def refers_to_main(code, mark, top=True):
    """Report whether code other than main itself can refer to main, by its name or
    in a string. False positives are possible."""
    if any(const is mark for const in code.co_consts):
        return False
    if "main" in code.co_names and (not top or reads_main(code)):
        return True
    for const in code.co_consts:
        if type(const) is type(code):
            if refers_to_main(const, mark, top=False):
                return True
        elif type(const) in (str, tuple, frozenset) and "main" in str(const).replace("__main__", ""):
            # Before Python 3.11, the name of a function is a constant, too.
            if not top or sys.version_info >= (3, 11) or const != "main":
                return True
    return False


# Operations that have flags in the lowest bits of the argument: since which
# version, and how many.
FLAGS = {"LOAD_GLOBAL": ((3, 11), 1), "LOAD_ATTR": ((3, 12), 1), "LOAD_SUPER_ATTR": ((3, 12), 2)}


def reads_main(code):
    """Report whether module-level code uses the name main other than to define
    it."""
    opcode = driver.own_module("opcode")
    if opcode is None:
        return True
    defines = {opcode.opmap.get(name) for name in ("STORE_NAME", "IMPORT_NAME", "IMPORT_FROM")}
    arg = 0
    for i in range(0, len(code.co_code), 2):
        op, low = code.co_code[i], code.co_code[i + 1]
        arg = arg << 8 | low
        if op == opcode.EXTENDED_ARG:
            continue
        if op in opcode.hasname and op not in defines:
            since, bits = FLAGS.get(opcode.opname[op], (sys.version_info, 0))
            at = arg >> bits if sys.version_info >= since else arg
            if at >= len(code.co_names) or code.co_names[at] == "main":
                return True
        arg = 0
    return False

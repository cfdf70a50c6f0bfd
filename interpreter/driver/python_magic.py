# The most common magics and shell commands of IPython, for images without it:
# %pip install x, !ls, files = !ls, %%bash. `driver` is python.py.
import os
import re
import subprocess
import sys
import time

LINE = re.compile(r"^(\s*)(?:([A-Za-z_][\w.,\s\[\]\"']*?)\s*=\s*)?(%|!!?)\s*(\S.*)$", re.S)
PIP = re.compile(r"^(\s*)()()(pip3?\s+(?:install|uninstall|list|show|freeze|download)\b.*)$", re.S)
# A shell command that consists only of a pip command.
ONLY_PIP = re.compile(r"(?:python3? -m )?pip3?\s+((?:install|uninstall|list|show|freeze|download)\b[^;&|`$()\n]*)$")


class UsageError(Exception):
    """A magic that does not exist or is used wrongly."""

    __module__ = "builtins"


# -- Translation --------------------------------------------------------------


def translate(source):
    """Return the source with magics replaced by calls. Lines keep their
    numbers."""
    if source.lstrip().startswith("%%"):
        head, _, body = source.lstrip()[2:].partition("\n")
        name, _, line = head.partition(" ")
        return "get_ipython().run_cell_magic(%r, %r, %r)" % (name.strip(), line.strip(), body)
    out = []
    lines = source.splitlines(True)
    quote, depth, joined = "", 0, False
    while lines:
        line = lines.pop(0)
        found = None if quote or depth or joined else LINE.match(line) or PIP.match(line)
        if found is None:
            quote, depth = scan(line, quote, depth)
            joined = line.rstrip("\r\n").endswith("\\")
            out.append(line)
            continue
        text, more = found.group(4).rstrip("\r\n"), 0
        while text.endswith("\\") and lines:
            text, more = text[:-1] + lines.pop(0).rstrip("\r\n"), more + 1
        out.append(call(found.group(1), found.group(2), found.group(3), text.strip()) + "\n" * (more + 1))
    return "".join(out)


def scan(line, quote, depth):
    """Parse a line of Python. Return the open string and the number of open
    brackets at its end."""
    i = 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\":
                i += 1
            elif line.startswith(quote, i):
                i += len(quote) - 1
                quote = ""
        elif c == "#":
            break
        elif c in "\"'":
            quote = c * 3 if line.startswith(c * 3, i) else c
            i += len(quote) - 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(0, depth - 1)
        i += 1
    if len(quote) == 1 and not line.rstrip("\r\n").endswith("\\"):
        quote = ""  # the string has no end, which Python will report
    return quote, depth


def call(indent, target, sign, text):
    target = target + " = " if target else ""
    if sign in ("%", ""):
        name, _, rest = text.partition(" ")
        made = "run_line_magic(%r, %r)" % (name, rest.strip())
    elif target or sign == "!!":
        made = "getoutput(%r)" % text
    else:
        made = "system(%r)" % text
    return "%s%sget_ipython().%s" % (indent, target, made)


# -- What is called -----------------------------------------------------------


class Lines(list):
    """The output lines of a command."""

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)


class Magics:
    """The result of get_ipython() in a cell."""

    def __init__(self, shell):
        self.shell = shell
        self.user_ns = shell.space
        self.last = os.getcwd()

    def get(self):
        return self

    def run_line_magic(self, name, line):
        method = getattr(self, "line_" + name.replace("pip3", "pip"), None)
        if method is None:
            raise UsageError("Line magic function `%%%s` not found." % name)
        return method(self.expand(line))

    def run_cell_magic(self, name, line, body):
        method = getattr(self, "cell_" + name, None)
        if method is None:
            raise UsageError("Cell magic `%%%%%s` not found." % name)
        return method(self.expand(line), body)

    def expand(self, text):
        """Insert variables: {expression} and $name. If one fails, the text
        stays unchanged."""
        space = self.user_ns

        def value(found):
            return str(eval(found.group(1), space))

        def name(found):
            return str(space[found.group(1)]) if found.group(1) in space else found.group(0)

        try:
            text = re.sub(r"(?<![${])\{([^{}]+)\}", value, text)
        except Exception:
            return text
        return re.sub(r"(?<!\$)\$([A-Za-z_]\w*)", name, text)

    def system(self, command):
        """Run a shell command that writes to the cell's output."""
        command = self.expand(command)
        pip = ONLY_PIP.match(command)
        if pip:
            return self.line_pip(pip.group(1))
        self.user_ns["_exit_code"] = run([shell(), "-c", command])
        refresh_imports()

    def getoutput(self, command):
        done = subprocess.run(
            [shell(), "-c", self.expand(command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
        )
        self.user_ns["_exit_code"] = done.returncode
        return Lines(done.stdout.splitlines())

    def line_pip(self, line):
        import shlex

        words = shlex.split(line)
        self.user_ns["_exit_code"] = code = run([sys.executable, "-m", "pip"] + words)
        refresh_imports()
        if code == 0:
            self.shell.report_installed(words)

    def line_cd(self, line):
        where = line.strip("\"'") or "~"
        here = os.getcwd()
        os.chdir(self.last if where == "-" else os.path.expanduser(where))
        self.last = here
        print(os.getcwd())

    def line_pwd(self, line):
        return os.getcwd()

    def line_ls(self, line):
        self.system("ls " + line)

    def line_env(self, line):
        if not line:
            return dict(os.environ)
        name, sign, value = line.partition("=" if "=" in line else " ")
        if not sign:
            if name not in os.environ:
                raise UsageError("Environment does not have key: " + name)
            return os.environ[name]
        os.environ[name.strip()] = value.strip()
        print("env: %s=%s" % (name.strip(), value.strip()))

    line_set_env = line_env

    def line_time(self, line):
        return self.cell_time("", line)

    def cell_time(self, line, body):
        wall, cpu = time.perf_counter(), os.times()
        try:
            return self.evaluate(body)
        finally:
            now = os.times()
            user, system = now[0] - cpu[0], now[1] - cpu[1]
            print("CPU times: user %s, sys: %s, total: %s" % (format_duration(user), format_duration(system), format_duration(user + system)))
            print("Wall time: %s" % format_duration(time.perf_counter() - wall))

    def evaluate(self, source):
        """Run source as a part of the cell. Return the value of its final
        expression."""
        return self.shell.run(self.shell.translate(source), "Cell [%d]" % self.shell.count)

    def line_timeit(self, line):
        self.time_loops(*options(line), "pass")

    def cell_timeit(self, line, body):
        given, setup = options(line)
        self.time_loops(given, body, setup or "pass")

    def time_loops(self, given, source, setup):
        import timeit

        timer = timeit.Timer(source, setup, globals=self.user_ns)
        loops = given.get("n") or timer.autorange()[0]
        runs = [t / loops for t in timer.repeat(given.get("r") or 7, loops)]
        mean = sum(runs) / len(runs)
        deviation = (sum((t - mean) ** 2 for t in runs) / len(runs)) ** 0.5
        print("%s ± %s per loop (mean ± std. dev. of %d runs, %d loops each)" % (format_duration(mean), format_duration(deviation), len(runs), loops))

    def line_who(self, line):
        hidden = set(self.shell.initial_names) | {"get_ipython"}
        print("\t".join(sorted(n for n in self.user_ns if n not in hidden and not n.startswith("_"))))

    def line_reset(self, line):
        for name in [n for n in self.user_ns if not n.startswith("__") and n not in self.shell.initial_names]:
            del self.user_ns[name]
        self.user_ns["get_ipython"] = self.get

    def line_run(self, line):
        name = line.split()[0] if line.split() else ""
        if not name:
            raise UsageError("Missing filename.")
        with open(name, encoding="utf-8") as f:
            exec(compile(f.read(), name, "exec", dont_inherit=True), self.user_ns)

    def line_matplotlib(self, line):
        """Do nothing. Figures are always shown in the cell."""

    def cell_bash(self, line, body):
        self.script("bash", line, body)

    def cell_sh(self, line, body):
        self.script("sh", line, body)

    def script(self, program, line, body):
        if line:
            raise UsageError("%%%%%s takes no options here: %s" % (program, line))
        code = run([program, "-c", body])
        if code:
            raise subprocess.CalledProcessError(code, program)

    def cell_writefile(self, line, body):
        append = line.startswith("-a ")
        name = os.path.expanduser((line[3:] if append else line).strip().strip("\"'"))
        if not name:
            raise UsageError("%%writefile: the name of a file is missing")
        print("%s %s" % ("Appending to" if append else "Overwriting" if os.path.exists(name) else "Writing", name))
        with open(name, "a" if append else "w", encoding="utf-8") as f:
            f.write(body)

    cell_file = cell_writefile


def options(line):
    """Return the number options of %timeit, and the rest of its line."""
    given = {}
    while True:
        found = re.match(r"\s*-([nr])\s*(\d+)(?!\S)", line)
        if found is None:
            return given, line.strip()
        given[found.group(1)], line = int(found.group(2)), line[found.end() :]


def open_magics(shell):
    return Magics(shell)


def run(argv):
    """Run a program that writes to the cell's output."""
    driver.ignore_errors(lambda: (sys.stdout.flush(), sys.stderr.flush()))
    return subprocess.call(argv)


def shell():
    return next((p for p in ("/bin/bash", "/usr/bin/bash") if os.path.exists(p)), "/bin/sh")


def refresh_imports():
    """Let imports find packages that were just installed."""
    import importlib
    import site

    importlib.invalidate_caches()
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    if user and os.path.isdir(user) and user not in sys.path:
        site.addsitedir(user)


# -- Packages that steps carry ------------------------------------------------

# A requirement by name, and the options of pip that do not change its meaning.
REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?\s?([=<>!~]=?=?[A-Za-z0-9.*+!_ ,=<>!~-]+)?$")
HARMLESS = re.compile(
    r"-[qvU]+$|--(quiet|verbose|upgrade|user|no-input|no-cache-dir|prefer-binary|break-system-packages"
    r"|disable-pip-version-check|no-warn-script-location|no-python-version-warning|progress-bar=\w+|root-user-action=\w+)$"
)
BY_PIP = re.compile(
    r"""["']?(?:[\w/.+-]*python[\w.]*["']?\s+-m\s+)?pip3?\s+((?:[^;&|`$()<>\n"']|"[^"$`\n]*"|'[^'\n]*')*)$"""
)


def pip_words(command):
    """Return the arguments of pip, if a shell command consists only of a pip
    command."""
    import shlex

    found = BY_PIP.match(command.strip())
    try:
        return shlex.split(found.group(1)) if found else None
    except ValueError:
        return None


def requirements(words):
    """Return the packages that the pip command installs, and the reason why
    the next step cannot get them."""
    if words[:1] != ["install"]:
        return [], None
    names = [w for w in words[1:] if not HARMLESS.match(w)]
    for w in names:
        if not REQUIREMENT.match(w):
            return [], "only packages by their names, from the operator's index, are carried"
    return names, None


def add_packages(folders):
    """Append directories with packages to the import path of this interpreter
    and its child interpreters. Do not run the .pth files in them."""
    import importlib
    import site

    if site.ENABLE_USER_SITE:
        user = site.getusersitepackages()
        try:
            os.makedirs(user, exist_ok=True)
            with open(os.path.join(user, "brig-packages.pth"), "w", encoding="utf-8") as f:
                f.writelines(folder + "\n" for folder in folders)
        except OSError:
            pass  # programs that the step starts will not find them
        if user not in sys.path:
            sys.path.append(user)  # packages that the step itself installs come first
    sys.path.extend(f for f in folders if f not in sys.path)
    importlib.invalidate_caches()


def format_duration(seconds):
    """Format a duration."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds / 1e-9)

# Cells by IPython, where the image has it: its magics, its results and its
# tracebacks, without its history, colours and terminal. `driver` is python.py.
import os
import re
import sys
import tempfile
import warnings

from IPython.core.autocall import ExitAutocall
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any
from traitlets.config import Config

COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Hook(DisplayHook):
    """Keeps the forms of a cell's result, which is told after its displays."""

    def write_output_prompt(self):
        """There is no prompt: what comes is a message."""

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.forms = format_dict

    def log_output(self, format_dict):
        """There is no log."""

    def quiet(self):
        """Tell whether the cell ends in a semicolon, for which it is read whole."""
        cells = self.shell.history_manager.input_hist_parsed
        return ";" in (cells[-1] if len(cells) else "") and super().quiet()

    def finish_displayhook(self):
        """Nothing was written that had to be finished."""


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *args, **options):
        self.shell.publish(data)

    def clear_output(self, wait=False):
        """What was shown stays: the host has it already."""


# Types whose values have no form but their text, unless somebody asks for one.
SIMPLE = (int, float, bool, complex, str, bytes)


class Formatter(DisplayFormatter):
    """IPython's forms and our own: frames, charts, JSON."""

    special = Any()

    def format(self, value, include=None, exclude=None):
        kind = type(value)
        if kind in SIMPLE and not include and not exclude and not self.registered(kind):
            # A dozen formatters would be asked, which takes half of a short cell.
            return {"text/plain": self.formatters["text/plain"](value)}, {}
        data, metadata = super().format(value, include, exclude)
        try:
            data.update(self.special(value))
        except Exception:
            pass  # a value that has none
        return data, metadata

    def registered(self, kind):
        """Tell whether somebody has a form of their own for a type."""
        if self.ipython_display_formatter.type_printers or self.mimebundle_formatter.type_printers:
            return True
        return any(kind in f.type_printers for name, f in self.formatters.items() if name != "text/plain")


# What lines in IPython's own syntax have, somewhere or at their beginning.
MARKS = re.compile(r"[%!?]|^\s*[,;/]")


def plain_python(manager):
    """Spare cells without any of IPython's own syntax the search for it, which
    reads them token by token."""
    search, known = manager.do_token_transforms, list(manager.token_transformers)

    def do_token_transforms(lines):
        if manager.token_transformers == known and not any(map(MARKS.search, lines)):
            return lines
        return search(lines)

    manager.do_token_transforms = do_token_transforms


class Exit(ExitAutocall):
    """exit and quit, with a code or without."""

    def __call__(self, code=None):
        raise SystemExit(code)


class Interactive(InteractiveShell):
    """IPython's shell, which keeps what it would print of results and errors."""

    displayhook_class = Hook
    display_pub_class = Publisher
    publish = Any()
    special = Any()
    installed = Any()
    forms = None
    trace = ""

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self, special=self.special)
        self.configurables.append(self.display_formatter)

    def system(self, command):
        """Run a command with the cell's output for its own, not for a copy."""
        magic = driver.sibling("python_magic")
        command = self.var_expand(command, depth=1)
        self.user_ns["_exit_code"] = code = magic.run([magic.shell(), "-c", command])
        magic.fresh()
        words = magic.pip_words(command)
        if code == 0 and words:
            self.installed(words)

    system_piped = system_raw = system

    def enable_gui(self, gui=None):
        """There is no screen: %matplotlib inline asks for none."""

    def _get_exc_info(self, exc_tuple=None):
        kind, value, trace = super()._get_exc_info(exc_tuple)
        return kind, value, driver.cut(trace)

    def _showtraceback(self, etype, evalue, stb):
        self.trace = self.InteractiveTB.stb2text(stb)

    def show_usage_error(self, exc):
        self.trace = "UsageError: %s\n" % exc

    def ask_exit(self):
        raise SystemExit

    def _exiter_default(self):
        return Exit(self)


def open_shell(channel, base):
    """IPython's shell as the driver's, made from the driver's own shell."""

    class Shell(base):
        def __init__(self, channel):
            super().__init__(channel)
            del self.space["display"], self.space["In"], self.space["Out"]
            for name in ("_", "__", "___"):
                del self.space[name]
            # It would else make a folder in the user's home.
            if "IPYTHONDIR" not in os.environ:
                os.environ["IPYTHONDIR"] = tempfile.mkdtemp(prefix="ipython-")
            self.ipython = Interactive.instance(
                config=settings(), user_module=self.module, publish=self.publish, special=self.rich.special,
                installed=self.installed,
            )
            self.ipython.loop_runner = self.tasks.wait
            plain_python(self.ipython.input_transformer_manager)
            warnings.filterwarnings("ignore", message="To exit: use")

        def execute(self, source):
            shell = self.ipython
            shell.forms, shell.trace, shell.execution_count = None, "", self.count
            done = shell.run_cell(source, store_history=True)
            error = done.error_before_exec or done.error_in_exec
            if error is not None:
                raise error
            return done.result

        def knows(self, file):
            """Have tracebacks call it by its number, as those of its own."""
            found = re.match(r"<ipython-input-(\d+)-", file)
            if found:
                self.ipython.compile._filename_map[file] = int(found.group(1))

        def show_result(self, value):
            forms = self.ipython.forms or {}
            forms = forms if "text/plain" in forms else dict(forms, **{"text/plain": self.rich.text(value)})
            self.say("result", forms)

        def publish(self, data):
            self.say("display", data)

        def display(self, *values, **options):
            from IPython.display import display

            display(*values, **options)

        def explain(self, error):
            return COLOURS.sub("", self.ipython.trace) or driver.explain(error)

    return Shell(channel)


def settings():
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Context"
    return config

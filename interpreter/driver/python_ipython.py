# Runs cells with IPython, if the image has it: with its magics, results and
# tracebacks, without its history, colors and terminal. `driver` is python.py.
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

ANSI_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Hook(DisplayHook):
    """Keeps the MIME bundle of a cell's result, which is sent after its
    displays."""

    def write_output_prompt(self):
        """Write no prompt. The result is a message."""

    def write_format_data(self, format_dict, md_dict=None):
        self.shell.forms, self.shell.forms_metadata = format_dict, md_dict

    def log_output(self, format_dict):
        """Write no log."""

    def quiet(self):
        """Report whether the cell ends in a semicolon. The complete source is
        needed for this."""
        cells = self.shell.history_manager.input_hist_parsed
        return ";" in (cells[-1] if len(cells) else "") and super().quiet()

    def finish_displayhook(self):
        """Write no final line break."""


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *args, transient=None, update=False, **options):
        self.shell.publish(data, metadata, (transient or {}).get("display_id"), update)

    def clear_output(self, wait=False):
        self.shell.clear(wait)


# Types whose values are only displayed as text, unless a program registers a
# formatter.
SIMPLE = (int, float, bool, complex, str, bytes)


class Formatter(DisplayFormatter):
    """IPython's MIME bundles with additional entries: data frames, charts, JSON."""

    special = Any()

    def format(self, value, include=None, exclude=None):
        kind = type(value)
        if kind in SIMPLE and not include and not exclude and not self.registered(kind):
            # Calling a dozen formatters would take half the time of a short cell.
            return {"text/plain": self.formatters["text/plain"](value)}, {}
        data, metadata = super().format(value, include, exclude)
        try:
            data.update(self.special(value))
        except Exception:
            pass  # the type has no other representation
        return data, metadata

    def registered(self, kind):
        """Report whether a program has registered a formatter for a type."""
        if self.ipython_display_formatter.type_printers or self.mimebundle_formatter.type_printers:
            return True
        return any(kind in f.type_printers for name, f in self.formatters.items() if name != "text/plain")


# Text that occurs in lines of IPython's own syntax, anywhere or at their
# start.
MARKS = re.compile(r"[%!?]|^\s*[,;/]")


def skip_transforms(manager):
    """Skip IPython's transformation of cells without its own syntax, because it
    parses every token."""
    search, known = manager.do_token_transforms, list(manager.token_transformers)

    def do_token_transforms(lines):
        if manager.token_transformers == known and not any(map(MARKS.search, lines)):
            return lines
        return search(lines)

    manager.do_token_transforms = do_token_transforms


class Exit(ExitAutocall):
    """The commands exit and quit, with an optional exit code."""

    def __call__(self, code=None):
        raise SystemExit(code)


class Interactive(InteractiveShell):
    """IPython's shell. It keeps results and errors instead of printing them."""

    displayhook_class = Hook
    display_pub_class = Publisher
    publish = Any()
    clear = Any()
    special = Any()
    report_installed = Any()
    forms = forms_metadata = None
    trace = ""

    def init_display_formatter(self):
        self.display_formatter = Formatter(parent=self, special=self.special)
        self.configurables.append(self.display_formatter)

    def system(self, command):
        """Run a command that writes to the cell's output directly, without a
        copy."""
        magic = driver.load_sibling("python_magic")
        command = self.var_expand(command, depth=1)
        self.user_ns["_exit_code"] = code = magic.run([magic.shell(), "-c", command])
        magic.refresh_imports()
        words = magic.pip_words(command)
        if code == 0 and words:
            self.report_installed(words)

    system_piped = system_raw = system

    def enable_gui(self, gui=None):
        """Do nothing. %matplotlib inline needs no screen."""

    def _get_exc_info(self, exc_tuple=None):
        kind, value, trace = super()._get_exc_info(exc_tuple)
        return kind, value, driver.strip_driver_frames(trace)

    def _showtraceback(self, etype, evalue, stb):
        self.trace = self.InteractiveTB.stb2text(stb)

    def show_usage_error(self, exc):
        self.trace = "UsageError: %s\n" % exc

    def ask_exit(self):
        raise SystemExit

    def _exiter_default(self):
        return Exit(self)


def open_shell(channel, base):
    """The driver's shell on top of IPython's, created from the driver's own
    shell."""

    class Shell(base):
        def __init__(self, channel):
            super().__init__(channel)
            del self.space["display"], self.space["In"], self.space["Out"]
            for name in ("_", "__", "___"):
                del self.space[name]
            # Otherwise IPython would create a directory in the user's home.
            if "IPYTHONDIR" not in os.environ:
                os.environ["IPYTHONDIR"] = tempfile.mkdtemp(prefix="ipython-")
            self.ipython = Interactive.instance(
                config=settings(), user_module=self.module, publish=self.publish, clear=self.clear_output, special=self.rich.special,
                report_installed=self.report_installed,
            )
            self.ipython.loop_runner = self.tasks.wait
            skip_transforms(self.ipython.input_transformer_manager)
            warnings.filterwarnings("ignore", message="To exit: use")

        def execute(self, source):
            shell = self.ipython
            shell.forms, shell.forms_metadata, shell.trace = None, None, ""
            # As in Jupyter, an uncounted cell uses the next number without consuming it.
            shell.execution_count = self.count + self.uncounted
            if "\0" in source:
                compile(source, "<cell>", "exec")  # IPython would leave a coroutine that warns later
            done = shell.run_cell(source, store_history=not self.uncounted)
            error = done.error_before_exec or done.error_in_exec
            if error is not None:
                raise error
            return done.result

        def register_source(self, file):
            """Register the number of an earlier cell, which names it in
            tracebacks."""
            found = re.match(r"<ipython-input-(\d+)-", file)
            if found:
                self.ipython.compile._filename_map[file] = int(found.group(1))

        def show_result(self, value):
            forms = self.ipython.forms or {}
            forms = forms if "text/plain" in forms else dict(forms, **{"text/plain": self.rich.text(value)})
            self.send("result", forms, self.ipython.forms_metadata)

        def publish(self, data, metadata, display_id, update):
            self.send("display", data, metadata, display_id, update)

        def display(self, *values, **options):
            from IPython.display import display

            return display(*values, **options)

        def explain(self, error):
            return ANSI_CODES.sub("", self.ipython.trace) or driver.format_error(error)

    return Shell(channel)


def settings():
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Context"
    return config

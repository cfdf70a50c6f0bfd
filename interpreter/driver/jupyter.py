# The driver for languages that have a Jupyter kernel. It reads requests from
# descriptor 3, as python.py does, and executes them with the kernel named by
# its argument. With --list it prints the installed kernels.
import json
import os
import queue
import re
import select
import signal
import sys
import tempfile
import time

CHANNEL = 3
ANSI_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Seconds between checks for interrupts and for the end of the kernel.
POLL_INTERVAL = 0.1
# Seconds that a kernel may take to start.
START_TIMEOUT = 60
# Seconds that a display waits for the host.
ACK_TIMEOUT = 2
# The maximum number of representations and of metadata members, and the maximum lengths of their
# names and of the metadata as JSON. The host ends a driver that sends more.
MAX_MEMBERS = 256
MAX_NAME = 1024
MAX_METADATA = 64 << 10

# Code that sets the environment and directory of a cell in a language, outside
# the cell, and code that restores the environment.
PYTHON = (
    "exec(%r, {'env': %r, 'cwd': %r})",
    "import os, sys\nsys._brig_env = {k: os.environ.get(k) for k in env}\nos.environ.update(env)\nif cwd: os.chdir(cwd)",
    "exec(%r, {})",
    "import os, sys\nfor k, v in sys._brig_env.items():\n"
    "    os.environ.pop(k, None) if v is None else os.environ.__setitem__(k, v)",
)
R_RESTORE = (
    'local({old <- getOption("brig.env"); for (n in names(old)) '
    "if (is.na(old[[n]])) Sys.unsetenv(n) else do.call(Sys.setenv, setNames(list(old[[n]]), n))})"
)

# Code that reseeds the generators of a kernel in a copy of its sandbox.
RENEW = {
    "python": (
        "exec(%r, {})" % "import os, sys\n"
        "if '_ssl' in sys.modules: sys.modules['_ssl'].RAND_add(os.urandom(48), 48.0)\n"
        "for name in ('random', 'numpy.random'):\n"
        "    if name in sys.modules: sys.modules[name].seed()"
    ),
    "r": 'local({s <- readBin("/dev/urandom", "integer"); set.seed(if (is.na(s)) 1L else s)})',
}


def enter_code(language, env, cwd):
    if language == "python":
        return PYTHON[0] % (PYTHON[1], env, cwd)
    if language == "r":
        names = ", ".join(r_text(name) for name in env)
        lines = ["options(brig.env = Sys.getenv(c(%s), unset = NA, names = TRUE))" % names] if env else []
        lines += ["Sys.setenv(%s = %s)" % (r_text(k), r_text(v)) for k, v in env.items()]
        return "\n".join(lines + (["setwd(%s)" % r_text(cwd)] if cwd else []))
    return ""


def restore_code(language):
    return {"python": PYTHON[2] % PYTHON[3], "r": R_RESTORE}.get(language, "")


def r_text(text):
    return json.dumps(text, ensure_ascii=False)


class Host:
    """The channel to the host. Messages repeat the nonce of their request."""

    nonce = ""
    acks = False  # whether the host acknowledges displays
    shown = acked = 0  # numbers of displays

    def __init__(self):
        os.set_inheritable(CHANNEL, False)
        self.unread = b""
        self.received = []  # requests that were received while a display waited

    def requests(self):
        while self.received or self.read():
            while self.received:
                request = self.received.pop(0)
                self.nonce, self.acks = request.get("nonce", ""), "acks" in request
                yield request

    def read(self):
        """Read requests and acknowledgements. Return whether the host is connected."""
        part = os.read(CHANNEL, 1 << 16)
        *lines, self.unread = (self.unread + part).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request.get("op") == "ack":
                self.acked = max(self.acked, request["ack"])
            else:
                self.received.append(request)
        return bool(part)

    def send(self, kind, **message):
        head = {"type": kind, "nonce": self.nonce}
        data = memoryview((json.dumps(dict(head, **message), allow_nan=False) + "\n").encode())
        while data:
            data = data[os.write(CHANNEL, data):]

    def show(self, kernel, kind, **message):
        """Send a display or its removal, and wait until the host has received
        it. Otherwise the host could not distinguish the output before it from
        the output after it. Meanwhile, an interrupt is passed to the kernel.
        After an interrupt, or if the host does not acknowledge in time, later
        displays of the cell do not wait."""
        if not self.acks:
            return self.send(kind, **message)
        self.shown += 1
        self.send(kind, ack=self.shown, **message)
        end = time.monotonic() + ACK_TIMEOUT
        while self.acked < self.shown and not self.received:
            kernel.check()
            if kernel.stopped or time.monotonic() > end:
                self.acks = False
                return
            if select.select([CHANNEL], [], [], POLL_INTERVAL)[0] and not self.read():
                return


class Kernel:
    """A kernel and the connection to it."""

    def __init__(self, name):
        from jupyter_client.manager import KernelManager

        self.interrupted = self.stopped = self.busy = False
        signal.signal(signal.SIGINT, self.on_interrupt)
        self.manager = KernelManager(kernel_name=name)
        self.manager.start_kernel()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_TIMEOUT)
        info = self.client.kernel_info(reply=True, timeout=START_TIMEOUT)["content"]["language_info"]
        self.language, self.version = info["name"].lower(), str(info.get("version", ""))

    def on_interrupt(self, signum, frame):
        self.interrupted = self.busy

    def run(self, code, silent=False):
        """Run code, and yield the kernel's messages about it until its end."""
        # After an error, a kernel briefly rejects requests that it considers queued. This driver
        # never queues requests, because it sends one cell at a time.
        request = self.client.execute(
            code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=False
        )
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=POLL_INTERVAL)
            except queue.Empty:
                self.check()
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            yield kind, content
            self.check()
        reply = self.reply(request)
        if reply.get("status") == "error":
            yield "error", reply

    def check(self):
        if self.interrupted:
            self.interrupted, self.stopped = False, True
            self.manager.interrupt_kernel()
        if not self.manager.is_alive():
            raise KernelDied("the kernel ended while the cell ran")

    def reply(self, request):
        while True:
            try:
                message = self.client.get_shell_msg(timeout=POLL_INTERVAL)
            except queue.Empty:
                self.check()
                continue
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def run_silent(self, code):
        if code:
            for _ in self.run(code, silent=True):
                pass


class KernelDied(Exception):
    """The kernel has ended."""


def cell(request, kernel, host, count):
    host.send("started", count=count)
    env, result, error = request.get("env") or {}, None, None
    kernel.interrupted, kernel.stopped, kernel.busy = False, False, True
    try:
        kernel.run_silent(enter_code(kernel.language, env, request.get("cwd")) if env or request.get("cwd") else "")
        for kind, content in kernel.run(request.get("code", "")):
            if kind == "stream":
                write(content["name"], content["text"])
            elif kind in ("display_data", "update_display_data"):
                host.show(kernel, "display", **bundle_fields(content, kind == "update_display_data"))
            elif kind == "clear_output":
                host.show(kernel, "clear", wait=bool(content.get("wait")))
            elif kind == "execute_result":
                result = bundle_fields(content)
            elif kind == "error":
                error = error or error_fields(content)
        kernel.busy = False
        kernel.run_silent(restore_code(kernel.language) if env else "")
    except KernelDied as exc:
        host.send("error", name="KernelDied", value=str(exc), traceback="KernelDied: %s\n" % exc)
        host.send("end")
        os._exit(1)
    if result is not None:
        host.send("result", **result)
    if error is not None:
        host.send("error", **error)
    host.send("end")


def write(stream, text):
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(2 if stream == "stderr" else 1, data):]


def bundle_fields(content, update=False):
    """Return the fields of a message for the host with a MIME bundle."""
    fields = {"data": mime_bundle(content)}
    metadata, display_id = content.get("metadata"), (content.get("transient") or {}).get("display_id")
    if isinstance(metadata, dict) and 0 < len(metadata) <= MAX_MEMBERS and is_json(metadata, MAX_METADATA):
        fields["metadata"] = metadata
    if display_id:
        fields.update(display_id=str(display_id)[:MAX_NAME], update=update)
    return fields


def mime_bundle(content):
    """Return the MIME bundle for the host, with base64 without line breaks."""
    found = {}
    for mime, form in sorted(content["data"].items(), key=lambda item: item[0] != "text/plain"):
        if len(mime) > MAX_NAME:
            continue
        if len(found) >= MAX_MEMBERS:
            break
        binary = mime == "application/pdf" or mime.startswith("image/") and mime != "image/svg+xml"
        if mime.endswith("json") and not is_json(form):
            continue
        if isinstance(form, list) and not mime.endswith("json"):
            form = "".join(form)
        found[mime] = form.replace("\n", "") if binary else form
    return found


def is_json(form, most=None):
    """Report whether the host can decode a form of this maximum size. A kernel may send NaN."""
    try:
        text = json.dumps(form, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return most is None or len(text) <= most


def error_fields(content):
    lines = content.get("traceback") or []
    value = ANSI_CODES.sub("", str(content.get("evalue", "")))
    return {"name": content.get("ename", "Error"), "value": value, "traceback": ANSI_CODES.sub("", "\n".join(lines))}


def serve(name):
    host = Host()
    # Connection files contain keys, so they are not stored in the user's home.
    os.environ["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="jupyter-")
    kernel = Kernel(name)
    host.send("ready", version=kernel.version, flavor="jupyter", nonces=True)
    count = 0
    for request in host.requests():
        op = request.get("op")
        if op == "ping":
            host.send("pong")
        elif op == "renew":
            kernel.run_silent(RENEW.get(kernel.language))
        elif op == "cell":
            count += 1
            cell(request, kernel, host, count)
        elif op == "program":
            text = "a Jupyter kernel runs cells, not programs"
            write("stderr", text + "\n")
            host.send("end", code=1, failure={"name": "Unsupported", "message": text, "traceback": text + "\n"})
    kernel.manager.shutdown_kernel(now=True)


def kernels():
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError:
        return []
    specs = KernelSpecManager().get_all_specs().items()
    return [
        {"name": name, "language": s["spec"].get("language", ""), "display_name": s["spec"].get("display_name", name)}
        for name, s in sorted(specs)
    ]


def kernel_for(wanted):
    """Return the kernel with a name, or else the first one for that language."""
    known = kernels()
    for key in ("name", "language", "display_name"):
        for kernel in known:
            if kernel[key].lower() == wanted.lower():
                return kernel["name"]
    names = ", ".join(sorted({k["language"].lower() for k in known})) or "none"
    sys.exit("no Jupyter kernel for %s; there are: %s" % (wanted, names))


# Modules that are imported from now on must not find the files of this
# directory.
sys.path[:] = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))]
# Without this variable, ipykernel's debugger prints irrelevant warnings, even if ipykernel is
# only looked up.
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
if sys.argv[1:] == ["--list"]:
    print(json.dumps(kernels()))
else:
    serve(kernel_for(sys.argv[1]))

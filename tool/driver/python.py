# The driver of tools in Python. It reads one order from descriptor 3, calls a
# function, and sends a signed report to the same descriptor.
#
# It imports its modules before it uses anything in the sandbox. -I excludes the
# working directory, to which other tools may have written.
import ast
import hashlib
import hmac
import inspect
import json
import os
import sys
import traceback
import types
import typing

CHANNEL = 3
LOST = 113


def main():
    parent = os.getpid()
    os.set_inheritable(CHANNEL, False)
    order = json.loads(receive())
    key = bytes.fromhex(order.pop("key"))
    report = run(order)

    def deliver():
        # A child that the function forked gets here, too. Only the parent sends
        # the report.
        if os.getpid() != parent:
            os._exit(0)
        payload = dumps(report)
        total = sign(key, payload.encode("ascii"), hashlib.sha256).hexdigest()
        flush()
        try:
            # Start a new line, because the function may have written to the channel.
            send(b'\n{"type":"returning","size":%d}\n' % len(payload))
            send(b'\n{"type":"report","size":%d,"sum":"%s","payload":' % (len(payload), total.encode()))
            send(dumps(payload).encode("ascii") + b"}\n")
        except OSError:
            os._exit(LOST)

    deliver()
    # Wait until the host kills the process tree or disconnects. The driver does
    # not wait for the function's threads.
    try:
        os.read(CHANNEL, 1)
    finally:
        os._exit(0)


def receive(read=os.read):
    parts = []
    while True:
        part = read(CHANNEL, 1 << 16)
        parts.append(part)
        if not part or b"\n" in part:
            return b"".join(parts)


def send(data, write=os.write):
    data = memoryview(data)
    while data:
        data = data[write(CHANNEL, data) :]


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


# References of the driver, so that functions that replace the originals do not
# affect it.
dumps, sign = json.dumps, hmac.new


def run(order):
    if "async" in order["source"]:
        # Import the image's asyncio, before the sandbox's directories are in the path.
        import asyncio  # noqa: F401
    sys.path[:0] = [os.getcwd()] + order["packages"] + [p for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    sys.argv = ["tool"]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    report = {"name": order["name"]}
    try:
        value, state = call(order, report)
        report["value"], report["text"] = plain(value)
        if state is not None:
            report["state"] = json.loads(dumps(state, default=simple, allow_nan=False))
    except BaseException as exc:
        report.pop("value", None)
        report["failure"] = failure(exc)
    return report


def call(order, report):
    tree = ast.parse(order["source"], "tool.py")
    functions = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    name = order["name"] or (functions[-1] if functions else "")
    report["name"] = name
    if not name:
        raise NameError("the source has no function")
    module = sys.modules["tool"] = types.ModuleType("tool")
    space = module.__dict__
    space["client"] = None
    space.update({n: getattr(typing, n) for n in typing.__all__})
    remember(order["source"])
    exec(compile(tree, "tool.py", "exec"), space)
    if name not in space:
        raise NameError("the source has no function %r" % name)
    function = space[name]
    wants = inspect.signature(function).parameters
    arguments = order["arguments"]
    if not order["typed"]:
        arguments = typed(function, wants, arguments)
    arguments = built(function, arguments)
    state = None
    if "agent_state" in wants:
        state = State.of(order["state"])
        arguments["agent_state"] = state
    value = function(**arguments)
    if inspect.isawaitable(value):
        import asyncio

        value = asyncio.run(awaited(value))
    return value, state


async def awaited(value):
    return await value


def remember(source):
    """Make tracebacks show the lines of the source."""
    import linecache

    linecache.cache["tool.py"] = (len(source), None, source.splitlines(True), "tool.py")


# -- Arguments ----------------------------------------------------------------


def hints(function):
    try:
        return typing.get_type_hints(function)
    except Exception:
        return {}


def typed(function, wants, arguments):
    """Convert arguments to the types of the function's annotations, if their text
    is a literal of the type."""
    known = hints(function)
    takes = any(p.kind is p.VAR_KEYWORD for p in wants.values())
    out = {}
    for name, value in arguments.items():
        if name not in wants and not takes:
            continue
        kind = typing.get_origin(known.get(name)) or known.get(name)
        if isinstance(value, str) and kind in (int, float, bool, list, dict, tuple, set):
            try:
                read = ast.literal_eval(value.strip().capitalize() if kind is bool else value)
            except (ValueError, SyntaxError):
                read = value
            value = kind(read) if kind is float and isinstance(read, int) else read
        elif kind is float and type(value) is int:
            value = float(value)
        if kind in (tuple, set) and isinstance(value, list):
            value = kind(value)
        out[name] = value
    return out


def built(function, arguments):
    """Create the pydantic models, and lists of them, that the function expects."""
    known, out = hints(function), {}
    for name, value in arguments.items():
        kind = known.get(name)
        within = typing.get_args(kind)
        if isinstance(value, dict) and hasattr(kind, "model_validate"):
            value = kind.model_validate(value)
        elif isinstance(value, list) and len(within) == 1 and hasattr(within[0], "model_validate"):
            value = [within[0].model_validate(v) for v in value]
        out[name] = value
    return out


# -- State --------------------------------------------------------------------


class State(dict):
    """The state of an agent: a dict whose items are also attributes."""

    @classmethod
    def of(cls, value):
        if isinstance(value, dict):
            made = Memory() if "blocks" in value else cls()
            made.update((k, cls.of(v)) for k, v in value.items())
            return made
        if isinstance(value, list):
            return [cls.of(v) for v in value]
        return value

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError("the agent's state has no %r" % name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        del self[name]


class Memory(State):
    """The memory of an agent: blocks of text with labels."""

    def get_block(self, label):
        for block in self["blocks"]:
            if block.get("label") == label:
                return block
        raise KeyError("Block field %s does not exist (available sections = %s)" % (label, ", ".join(self.list_block_labels())))

    def list_block_labels(self):
        return [block.get("label") for block in self["blocks"]]

    def update_block_value(self, label, value):
        if not isinstance(value, str):
            raise ValueError("Provided value must be a string")
        self.get_block(label)["value"] = value

    def set_block(self, block):
        block = State.of(dict(block))
        for i, old in enumerate(self["blocks"]):
            if old.get("label") == block.get("label"):
                self["blocks"][i] = block
                return
        self["blocks"].append(block)


# -- Values -------------------------------------------------------------------


def simple(value):
    """Convert a value that JSON does not support to one that it does."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {k: getattr(value, k) for k in value.__dataclass_fields__}
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def plain(value):
    """Return a value as JSON, and its text, or "" if the value itself is the text.
    A value that JSON cannot represent becomes its text."""
    if type(value) is str:
        return clean(value), ""
    try:
        text = dumps(value, default=simple, allow_nan=False)
        value = json.loads(text)
    except Exception:
        return clean(str(value)), ""
    if type(value) is str:
        return value, ""
    return value, text if type(value) is dict else clean(str(value))


def clean(text):
    """Replace lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def failure(exc):
    try:
        message = str(exc)
    except Exception:
        message = "<unprintable %s>" % type(exc).__name__
    frames = traceback.extract_tb(exc.__traceback__)
    while frames and frames[0].filename == "<string>":
        frames.pop(0)
    lines = ["Traceback (most recent call last):\n"] + frames.format() + traceback.format_exception_only(type(exc), exc)
    text = clean("".join(lines))
    try:
        print(text, end="", file=sys.stderr)
    except Exception:
        pass
    return {"name": type(exc).__name__, "message": clean(message), "traceback": text}


main()

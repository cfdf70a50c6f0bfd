"""smolagents' own remote executors against Brig. The same checks for each of
them: EXECUTOR is e2b, or the name of a kernel spec. Says how each check went, a
line each, for smolagents_test.go, and writes what came of every piece of code to
the file OUTCOMES: kernels of both specs must say the same."""
import base64
import datetime
import decimal
import io
import json
import os
import pathlib
import sys
import time
import traceback
import urllib.error
import urllib.request
from contextlib import closing

import PIL.Image
from smolagents import CodeAgent, Tool, tool
from smolagents.default_tools import FinalAnswerTool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import (
    E2BExecutor,
    RemotePythonExecutor,
    _create_kernel_http,
    _websocket_run_code_raise_errors,
)
from smolagents.serialization import SerializationError
from smolagents.utils import AgentError
from websocket import WebSocketBadStatusException, create_connection

URL, KEY = os.environ["BRIG_URL"], os.environ["BRIG_KEY"]
EXECUTOR = os.environ["EXECUTOR"]
LOGGER = AgentLogger(level=LogLevel.OFF)
outcomes = []
failed = 0


def request(method, path, token=KEY, body=None):
    data = json.dumps(body).encode() if body is not None else None
    r = urllib.request.Request("%s%s?token=%s" % (URL, path, token), method=method, data=data)
    try:
        with urllib.request.urlopen(r) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as err:
        return err.code, json.loads(err.read())


class GatewayExecutor(RemotePythonExecutor):
    """Does the same as smolagents' container executors after the start of their container:
    calls its own functions with an address."""

    def __init__(self, additional_imports, logger):
        super().__init__(additional_imports, logger)
        # Their request has no body, so the kernel is the server's default.
        self.kernel_id = _create_kernel_http("%s/api/kernels?token=%s" % (URL, KEY), logger)
        ws = "ws" + URL.removeprefix("http")
        self.ws_url = "%s/api/kernels/%s/channels?token=%s" % (ws, self.kernel_id, KEY)
        self.installed_packages = self.install_packages(additional_imports)

    def run_code_raise_errors(self, code):
        with closing(create_connection(self.ws_url)) as ws:
            return _websocket_run_code_raise_errors(code, ws, self.logger, self.allow_pickle)

    def cleanup(self):
        if self.kernel_id:
            status, _ = request("DELETE", "/api/kernels/" + self.kernel_id)
            assert status == 204, status
            self.kernel_id = None


def executor():
    if EXECUTOR == "e2b":
        return E2BExecutor([], LOGGER)
    return GatewayExecutor([], LOGGER)


class Recorder:
    """An executor whose log is recorded."""

    def __init__(self):
        self.inner = executor()

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, code):
        try:
            out = self.inner(code)
        except AgentError as err:
            outcomes.append([code, "AgentError", str(err)])
            raise
        outcomes.append([code, repr(out.output), out.logs, out.is_final_answer])
        return out

    def value(self, code):
        out = self(code)
        assert not out.is_final_answer, out
        return out.output

    def final(self, code):
        out = self(code)
        assert out.is_final_answer, out
        return out.output


def check(f):
    global failed
    begin = time.monotonic()
    ex = None
    try:
        ex = Recorder()
        f(ex)
        print("ok", f.__name__, flush=True)
    except BaseException:
        failed += 1
        print("FAIL %s: %s" % (f.__name__, traceback.format_exc().replace("\n", "\n     ")), flush=True)
    finally:
        if ex is not None:
            ex.cleanup()
    print("%s took %.2f s" % (f.__name__, time.monotonic() - begin), file=sys.stderr)


def raises(kind, call, *args):
    try:
        call(*args)
    except kind as err:
        return str(err)
    raise AssertionError("no %s" % kind)


@check
def state_persists(ex):
    ex("a, b = 2, [1]\nimport math as m\ndef double(x):\n    return x * a\nclass Box:\n    def __init__(self, v): self.v = v\nbox = Box(5)")
    ex("b.append(double(3)); box.v += 1; a = 10")
    assert ex.value("b, double(2), m.floor(2.7), box.v") == "([1, 6], 20, 2, 6)"
    assert ex.value("a += 1\na") == "11"


@check
def logs(ex):
    out = ex("print('one'); print('two')\nprint('ünïcode ✓')\n'last'")
    assert "one\ntwo\n" in out.logs and "ünïcode ✓" in out.logs, out.logs
    assert ex("x = 1").output is None


@check
def variables_are_sent(ex):
    sent = {
        "n": 3, "f": 1.5, "s": "text", "nothing": None, "yes": True, "list_": [1, [2]], "t": (1, 2), "st": {1, 2}, "fs": frozenset({3}),
        "by": b"\x00\xff", "c": 1 + 2j, "d": {"k": [1]}, "keys": {1: "one", (2, 3): "pair"}, "dt": datetime.datetime(2024, 1, 2, 3, 4, 5),
        "day": datetime.date(2024, 1, 2), "hour": datetime.time(3, 4), "span": datetime.timedelta(hours=2), "dec": decimal.Decimal("1.10"),
        "path": pathlib.Path("/a/b"),
    }  # fmt: skip
    ex.send_variables(sent)
    ex.send_tools({"final_answer": FinalAnswerTool()})
    names = ", ".join("%r: %s" % (k, k) for k in sent)
    assert ex.final("final_answer({%s})" % names) == sent
    ex("n += 1; list_.append('more')")
    assert ex.value("n, list_, dt.year, path.name") == "(4, [1, [2], 'more'], 2024, 'b')"


class Counter(Tool):
    name = "count_up"
    description = "Counts."
    inputs = {"by": {"type": "integer", "description": "how much"}}
    output_type = "integer"

    def forward(self, by: int) -> int:
        self.total = getattr(self, "total", 0) + by
        return self.total


@tool
def shout(text: str, times: int = 2) -> str:
    """Says it loudly.

    Args:
        text: what to say
        times: how often
    """
    return (text.upper() + "! ") * times


@check
def custom_tools(ex):
    ex.send_tools({"count_up": Counter(), "shout": shout})
    assert ex.value("count_up(2), shout('hi')") == "(2, 'HI! HI! ')"
    assert ex.value("count_up(by=5), shout(text='a', times=1)") == "(7, 'A! ')"
    assert ex.value("tuple(shout(x, 1) for x in 'ab')") == "('A! ', 'B! ')"


@check
def final_answers(ex):
    ex.send_tools({"final_answer": FinalAnswerTool()})
    assert ex.final("final_answer('plain')") == "plain"
    assert ex.final("final_answer(answer={'k': (1, {2})})") == {"k": (1, {2})}
    assert ex.final("x = 5\nfinal_answer(x * 2)\nprint('never')") == 10
    assert ex.final("def answer():\n    return final_answer([x])\nanswer()") == [5]
    assert ex.final("for i in range(9):\n    if i == 3:\n        final_answer(i)") == 3
    assert ex.final("try:\n    final_answer(None)\nexcept Exception:\n    pass") is None
    assert ex.value("x") == "5"
    out = ex("print('said'); final_answer(b'\\x00')")
    assert out.is_final_answer and out.output == b"\x00" and "said" in out.logs


@check
def what_is_not_safe_is_no_answer(ex):
    ex.send_tools({"final_answer": FinalAnswerTool()})
    said = raises(AgentError, ex, "final_answer(object())")
    assert "SerializationError" in said and "Cannot safely serialize" in said, said
    # The executor must not unpickle data because a sandbox claims that it is a pickle.
    forged = "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException('pickle:gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAZpZCA+IHGUhZRSlC4=')"
    raises(SerializationError, ex.inner, forged)


@check
def image_answer(ex):
    ex.send_tools({"final_answer": FinalAnswerTool()})
    picture = ex.final("from PIL import Image\nim = Image.new('RGB', (8, 4), (200, 10, 20))\nfinal_answer(im)")
    assert isinstance(picture, PIL.Image.Image) and picture.size == (8, 4) and picture.convert("RGB").getpixel((1, 1)) == (200, 10, 20)
    assert ex.value("im.size") == "(8, 4)"


@check
def syntax_error(ex):
    said = raises(AgentError, ex, "def broken(:\n    pass")
    assert "SyntaxError" in said and "def broken(:" in said, said
    assert ex.value("1 + 1") == "2"


@check
def errors_keep_the_state(ex):
    said = raises(AgentError, ex, "y = 7\nprint('before')\ny / 0")
    assert "ZeroDivisionError" in said and "y / 0" in said, said
    assert ex.value("y") == "7"
    said = raises(AgentError, ex, "undefined_name")
    assert "NameError" in said, said


@check
def failing_functions_are_shown(ex):
    ex("def fails(x):\n    return 1 / x")
    said = raises(AgentError, ex, "fails(0)")
    assert "return 1 / x" in said and "ZeroDivisionError" in said, said


# Traces that untrusted code leaves in a first step, and how the second step
# detects them.
PLANTS = {
    "a process": ("import subprocess\nsubprocess.Popen(['sleep', '7701'], start_new_session=True)", "'sleep\\x007701' in ''.join(cmdlines())"),
    "a file": ("open('/workspace/planted', 'w').write('x')", "os.path.exists('/workspace/planted')"),
    "a file in home": ("open(os.path.expanduser('~/.planted'), 'w').write('x')", "os.path.exists(os.path.expanduser('~/.planted'))"),
    "a thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='planted', daemon=True).start()", "'planted' in [t.name for t in threading.enumerate()]"),
    "a builtin": ("import builtins\nbuiltins.planted = lambda: 1", "hasattr(builtins, 'planted')"),
    "a patched builtin": ("len_ = builtins.len\nbuiltins.len = lambda x: 41 if x == 'probe' else len_(x)", "len('probe') == 41"),
    "a patched module": ("import json\njson.planted = 1", "hasattr(json, 'planted')"),
    "an import hook": ("import sys\nclass Hook:\n    planted = True\n    def find_spec(self, *a): return None\nsys.meta_path.insert(0, Hook())", "any(getattr(h, 'planted', False) for h in sys.meta_path)"),
    "sitecustomize": ("import site\nd = site.getusersitepackages()\nos.makedirs(d, exist_ok=True)\nopen(d + '/sitecustomize.py', 'w').write('print(1)')\nopen(d + '/usercustomize.py', 'w').write('print(1)')", "os.path.exists(site.getusersitepackages() + '/usercustomize.py')"),
    "a trace": ("sys.setprofile(lambda *a: None)", "sys.getprofile() is not None"),
    "the environment": ("os.environ['PLANTED'] = '1'", "'PLANTED' in os.environ"),
}  # fmt: skip


def planted(ex):
    """Not among the outcomes: here the specs must differ."""
    run = ex.inner.run_code_raise_errors
    run("harmless = 'still here'")
    for name, (plant, _) in PLANTS.items():
        run("import os, sys, builtins\n" + plant)
    probe = (
        "import os, sys, glob, threading, builtins, json, site\n"
        "def cmdlines():\n"
        "    for name in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "        try: yield open(name).read()\n"
        "        except OSError: pass\n"
        "print('@@' + json.dumps([%s, harmless]))" % ", ".join("bool(%s)" % p for _, p in PLANTS.values())
    )
    out = run(probe)
    found = json.loads(out.logs.partition("@@")[2].splitlines()[0])
    assert found.pop() == "still here"
    for name, there in zip(PLANTS, found):
        assert there == (EXECUTOR != "python3-ephemeral"), "%s is there: %s" % (name, there)


check(planted)
WHEEL = pathlib.Path(os.environ["WHEEL"])


@check
def pip_install(ex):
    # Not among the outcomes: an ephemeral kernel reports that it carries no file. packages.py
    # tests packages from an index.
    wheel = base64.b64encode(WHEEL.read_bytes()).decode()
    out = ex.inner(
        "import base64\nopen(%r, 'wb').write(base64.b64decode(%r))\n!pip install -q --no-index ./%s\nimport brigtest\nprint(brigtest.word())"
        % (WHEEL.name, wheel, WHEEL.name)
    )
    assert "a word from a wheel" in out.logs, out.logs


@check
def relative_paths(ex):
    out = ex.inner("open('rel.txt', 'w').write('by code')\n!cat rel.txt; echo; pwd; echo by command > out.txt\nprint(open('out.txt').read())")
    where = "/home/user" if EXECUTOR == "e2b" else "/workspace"
    assert "by code\n%s\n" % where in out.logs and "by command" in out.logs, out.logs


@check
def dies_and_comes_back(ex):
    if EXECUTOR == "e2b":
        return
    ex("z = 1")
    said = raises(AgentError, ex, "import os\nos._exit(3)")
    assert "InterpreterDied" in said or "interpreter ended" in said, said
    said = raises(AgentError, ex, "z")
    assert "NameError" in said, said


@check
def takes_too_long(ex):
    if EXECUTOR == "e2b":
        return
    ex("kept = 1")
    said = raises(AgentError, ex, "import time\nwhile True: time.sleep(1)")
    assert "TimeoutError: the code did not end within" in said, said
    assert ex.value("kept") == "1"


class Scripted(Model):
    """A model with prepared answers."""

    def __init__(self, steps):
        super().__init__()
        self.steps = list(steps)

    def generate(self, messages, **options):
        text = "Thought: next.\n<code>\n%s\n</code>" % self.steps.pop(0)
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


@check
def a_whole_agent(ex):
    steps = [
        "data = [3, 1, 2]\nprint(sorted(data))",
        "total = count_up(sum(data))\nprint(total, given)",
        "oops = missing_name",
        "final_answer({'total': total, 'said': shout('done', 1), 'given': given})",
    ]
    agent = CodeAgent(tools=[Counter(), shout], model=Scripted(steps), executor=ex, verbosity_level=LogLevel.OFF, max_steps=6)
    got = agent.run("add up", additional_args={"given": "by the caller"})
    assert got == {"total": 6, "said": "DONE! ", "given": "by the caller"}, got
    observations = " ".join(str(getattr(s, "observations", "")) for s in agent.memory.steps)
    assert "[1, 2, 3]" in observations and "6 by the caller" in observations, observations


def wrong_token():
    for token in ("wrong", ""):
        assert request("GET", "/api/kernelspecs", token)[0] == 403
        assert request("POST", "/api/kernels", token)[0] == 403
    status, kernel = request("POST", "/api/kernels", body={"name": EXECUTOR})
    assert status == 201 and kernel["name"] == EXECUTOR, kernel
    ws = "ws%s/api/kernels/%s/channels?token=" % (URL.removeprefix("http"), kernel["id"])
    try:
        create_connection(ws + "wrong")
        raise AssertionError("it was let in")
    except WebSocketBadStatusException as err:
        assert err.status_code == 403, err
    create_connection(ws + KEY).close()
    assert request("DELETE", "/api/kernels/" + kernel["id"])[0] == 204
    assert request("GET", "/api/kernels/" + kernel["id"])[0] == 404
    print("ok wrong_token", flush=True)


def nothing_is_left():
    status, kernels = request("GET", "/api/kernels")
    assert (status, kernels) == (200, []), kernels
    print("ok nothing_is_left", flush=True)


if EXECUTOR != "e2b":
    status, specs = request("GET", "/api/kernelspecs")
    assert status == 200 and specs["default"] == EXECUTOR, specs
    wrong_token()
    nothing_is_left()
with io.open(os.environ["OUTCOMES"], "w", encoding="utf-8") as f:
    json.dump(outcomes, f, indent=1)
sys.exit(1 if failed else 0)

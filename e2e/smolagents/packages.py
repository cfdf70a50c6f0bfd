"""Packages that smolagents' executor installs in one step are there in the next,
whatever the kernel: the same for each kernel spec. Writes what came of every
piece of code to the file OUTCOMES. The index is named to pip by the kernel's
environment."""
import json
import os
import sys
import urllib.request
from contextlib import closing

from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor, _websocket_run_code_raise_errors
from smolagents.utils import AgentError
from websocket import create_connection

URL, KEY, SPEC = os.environ["BRIG_URL"], os.environ["BRIG_KEY"], os.environ["EXECUTOR"]
PIP = {"PIP_INDEX_URL": os.environ["INDEX"], "PIP_TRUSTED_HOST": os.environ["INDEX_HOST"], "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def request(method, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    r = urllib.request.Request("%s%s?token=%s" % (URL, path, KEY), method=method, data=data)
    with urllib.request.urlopen(r) as answer:
        text = answer.read()
        return json.loads(text) if text else None


class Executor(RemotePythonExecutor):
    def __init__(self, packages):
        super().__init__([], AgentLogger(level=LogLevel.OFF))
        self.kernel_id = request("POST", "/api/kernels", {"name": SPEC, "env": PIP})["id"]
        self.ws_url = "ws%s/api/kernels/%s/channels?token=%s" % (URL.removeprefix("http"), self.kernel_id, KEY)
        self.installed_packages = self.install_packages(packages)

    def run_code_raise_errors(self, code):
        with closing(create_connection(self.ws_url)) as ws:
            return _websocket_run_code_raise_errors(code, ws, self.logger, self.allow_pickle)


CHILD = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import brigtestgreet; print(brigtestgreet.VERSION)'], capture_output=True, text=True).stdout"
STEPS = [
    "import brigtestgreet\nbrigtestgreet.VERSION",
    "brigtestgreet.VERSION",
    "from brigtestgreet import VERSION as v\ndef f(): return brigtestgreet.VERSION + v",
    "f()",
    "from importlib.metadata import version\nversion('brigtestgreet')",
    CHILD,
    "import os\nos._exit(3)",
    "import brigtestgreet\nbrigtestgreet.VERSION",
    "!pip install -q 'brigtestgreet == 2.0'",
    CHILD,
    "import brig_no_such_package",
]
outcomes = []
ex = Executor(["brigtestgreet==1.0"])
for code in STEPS:
    try:
        out = ex(code)
        outcomes.append([code, str(out.output)])
    except AgentError as err:
        outcomes.append([code, "AgentError: " + str(err).strip().splitlines()[-1]])
request("DELETE", "/api/kernels/" + ex.kernel_id)
with open(os.environ["OUTCOMES"], "w", encoding="utf-8") as f:
    json.dump(outcomes, f)
print("ok packages", file=sys.stderr)

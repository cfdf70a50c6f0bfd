"""Answers the calls of output_matrix_test.go with smolagents' own client of a
kernel gateway: a JSON document per line. SPEC names the kernel spec."""
import json
import os
import sys
import urllib.request
from contextlib import closing

from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import _websocket_run_code_raise_errors
from smolagents.utils import AgentError
from websocket import create_connection

URL, KEY = os.environ["BRIG_URL"], os.environ["BRIG_KEY"]
LOGGER = AgentLogger(level=LogLevel.OFF)


def request(method, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request("%s%s?token=%s" % (URL, path, KEY), method=method, data=data)) as answer:
        text = answer.read()
        return json.loads(text) if text else None


class Recorder:
    """A connection that keeps what smolagents merges: the text of each stream."""

    def __init__(self, ws):
        self.ws, self.answer = ws, {"stdout": "", "stderr": ""}

    def send(self, *args):
        return self.ws.send(*args)

    def recv(self):
        text = self.ws.recv()
        message = json.loads(text)
        content = message.get("content", {})
        if message.get("msg_type") == "stream":
            self.answer[content["name"]] += content["text"]
        elif message.get("msg_type") == "error":
            self.answer.update(error=content["ename"], value=content["evalue"])
        return text


kernel = request("POST", "/api/kernels", {"name": os.environ["SPEC"]})["id"]
channels = "ws%s/api/kernels/%s/channels?token=%s" % (URL.removeprefix("http"), kernel, KEY)


def cell(code):
    with closing(create_connection(channels, timeout=180)) as ws:
        recorder = Recorder(ws)
        try:
            out = _websocket_run_code_raise_errors(code, recorder, LOGGER)
            assert len(out.logs) == len(recorder.answer["stdout"]) + len(recorder.answer["stderr"]), out.logs[-200:]
        except AgentError:
            assert "error" in recorder.answer
        return recorder.answer


try:
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = cell(call["code"])
        except Exception as err:
            answer = {"failure": repr(err)[:2000]}
        print(json.dumps(answer), flush=True)
finally:
    request("DELETE", "/api/kernels/" + kernel)

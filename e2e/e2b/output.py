"""Answers the calls of output_matrix_test.go with E2B's Python SDK, of either
generation: a JSON document per line."""
import json
import os
import socket
import sys

# No name server knows the domain of the test.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve("127.0.0.1" if str(host).endswith("e2b.test") else host, *rest, **more)

from e2b_code_interpreter import Sandbox  # noqa: E402

try:
    from e2b import CommandExitException
except ImportError:
    from e2b.sandbox.commands.command_handle import CommandExitException

TIMEOUT = 120
options = {"template": os.environ["TEMPLATE"], "timeout": 12 * 3600}
box = Sandbox.create(**options) if os.environ["GENERATION"] == "2" else Sandbox(**options)


def cell(language, code):
    r = box.run_code(code, language=language, timeout=TIMEOUT)
    answer = {"stdout": "".join(r.logs.stdout), "stderr": "".join(r.logs.stderr)}
    if r.error is not None:
        answer.update(error=r.error.name, value=r.error.value)
    return answer


def command(language, code):
    try:
        r = box.commands.run(code, timeout=TIMEOUT)
    except CommandExitException as err:
        r = err
    return {"stdout": r.stdout, "stderr": r.stderr, "exit": r.exit_code}


try:
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = {"cell": cell, "command": command}[call["form"]](call["language"], call["code"])
        except Exception as err:
            answer = {"failure": repr(err)[:2000]}
        print(json.dumps(answer), flush=True)
finally:
    box.kill()

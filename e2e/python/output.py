"""Answers the calls of output_matrix_test.go with Brig's Python package: a JSON
document per line."""
import json
import os
import sys

from brig.sync import SandboxClient, SandboxSpec

TIMEOUT = 120
IMAGE = os.environ["IMAGE"]


def plain(r):
    answer = {"stdout": r.stdout, "stderr": r.stderr, "exit": getattr(r, "exit_code", 0)}
    error = getattr(r, "error", None)
    if error is not None:
        answer.update(error=error.name, value=error.message)
    return answer


with SandboxClient() as client, client.create(SandboxSpec("python", image=IMAGE, cpus=None, ttl=3600)) as box:
    forms = {
        "run": lambda language, code: client.run(code, language=language, image=IMAGE, cpus=None, timeout=TIMEOUT),
        "cell": lambda language, code: box.run_code(code, language=language, timeout=TIMEOUT),
        "command": lambda language, code: box.shell(code, timeout=TIMEOUT),
    }
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer = plain(forms[call["form"]](call["language"], call["code"]))
        except Exception as err:
            answer = {"failure": repr(err)[:2000]}
        print(json.dumps(answer), flush=True)

"""A coding agent's loop: clone a repository, run its tests, let a model change a
file, and repeat until the tests pass. The sandbox may connect only to the
repository's host.

    python coding_agent.py http://git.example.com/project.git
"""

import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

from brig.sync import SandboxClient, SandboxHandle, SandboxSpec

TESTS = "python3 -m unittest -q"


def model(source: str) -> Iterator[str]:
    """Replaces a model, and needs two attempts."""
    yield source.replace("a - b", "a * b")
    yield source.replace("a - b", "a + b")


def attempt(sandbox: SandboxHandle, source: str) -> bool:
    sandbox.files.write("/workspace/project/sums.py", source)
    return sandbox.shell(TESTS, cwd="/workspace/project", timeout=60).ok


def main(repository: str) -> None:
    host = urlsplit(repository)
    port = host.port or (443 if host.scheme == "https" else 80)
    # Two attempts within a second can have the same size and time. Python
    # would then use the compiled first attempt for the second one.
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    spec = SandboxSpec("coding", image=None, egress=[f"{host.hostname}:{port}"], env=env)
    with SandboxClient() as client, client.create(spec) as sandbox:
        cloned = sandbox.exec("git", ["clone", "-q", repository, "project"])
        if not cloned.ok:
            sys.exit(cloned.output)
        before = sandbox.shell(TESTS, cwd="/workspace/project")
        print("tests pass" if before.ok else "tests fail: " + before.output.strip().splitlines()[-1])
        source = sandbox.files.read_text("/workspace/project/sums.py")
        for n, changed in enumerate(model(source), 1):
            if attempt(sandbox, changed):
                print(f"tests pass after attempt {n}")
                # Git runs inside the sandbox, so the repository's hooks and
                # configuration never run outside.
                print(sandbox.shell("git diff -U0 | grep '^[+-] '", cwd="/workspace/project").stdout, end="")
                return
            print(f"attempt {n} does not help")
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])

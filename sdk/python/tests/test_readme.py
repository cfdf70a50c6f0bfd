"""Runs the examples of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
SHOWN = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.S | re.M)


@pytest.mark.parametrize(
    ("number", "prints"),
    [
        (0, r"42\n\n\$HOME is not looked at\n\n3\nb\n\n"),
        (1, r"[\d.]+-gvisor\n\n"),
        (2, r"b'.* UTC 20\d\d.*'\n"),
        (3, r"hello\nhello\n\nhello\nhello\n\n\n\[\('/in.txt', 6\), \('/out.txt', 12\)\] hello\nhello\n\nb'hello\\nhello\\n'\n"),
        (4, r"42 Rome\n\n42 Rome\n\n"),
        (
            5,
            r"\{'text': 'hi', 'n': 42\}\nstdout 1\nstdout 2\nstdout 3\n0\n12.566370614359172\n"
            r"\[.*b.txt'\]\nHTTP/1.0 200 OK\r?\n.*hellobegun\ndone\n0\n",
        ),
    ],
    ids=["first", "asyncio", "spec", "volumes", "copies", "more"],
)
def test_example(where: str, number: int, prints: str) -> None:
    done = subprocess.run([sys.executable, "-c", SHOWN[number]], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(prints, done.stdout, re.S), done.stdout


def test_all_examples_run() -> None:
    assert len(SHOWN) == 6

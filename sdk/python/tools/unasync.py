"""Generates brig/_sync from brig/_async, and the blocking tests from the asynchronous ones.

python tools/unasync.py          # writes the files
python tools/unasync.py --check  # fails if a file is not up to date
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "brig"
TESTS = Path(__file__).parent.parent / "tests"

#: Files that are written by hand in both packages.
BY_HAND = {"__init__.py", "_thread.py"}

#: Names that differ in blocking code.
NAMES = {
    "AnyIOBackend": "SyncBackend",
    "AsyncClient": "Client",
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "AsyncHTTPTransport": "HTTPTransport",
    "AsyncIterator": "Iterator",
    "AsyncNetworkBackend": "NetworkBackend",
    "AsyncNetworkStream": "NetworkStream",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "aread": "read",
}

#: The type of a blocking generator has two more parameters.
_GENERATOR = re.compile(r"Generator\[(.*), None\]")


def blocking(source: str) -> str:
    """Return the code with neither async nor await."""
    out: list[str] = []
    row, column = 1, 0
    skip_space = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[0] > row:
            row, column = token.start[0], 0
        space = token.line[column : token.start[1]] if token.start[1] > column else ""
        text = token.string
        out.append("" if skip_space else space)
        skip_space = False
        if token.type == tokenize.STRING:
            text = re.sub(r"\b(?:async|await) ", "", text)
        elif text in ("async", "await"):
            text, skip_space = "", True
        out.append(NAMES.get(text, text) if token.type == tokenize.NAME or not text.strip() else text)
        row, column = token.end
    return _GENERATOR.sub(r"Generator[\1, None, None]", "".join(out))


def generated() -> dict[Path, str]:
    """Return the content of each generated file."""
    notice = "# Generated from {} by tools/unasync.py. Edit that file.\n"
    files = {
        PACKAGE / "_sync" / f.name: notice.format(f"brig/_async/{f.name}") + blocking(f.read_text())
        for f in sorted((PACKAGE / "_async").glob("*.py"))
        if f.name not in BY_HAND
    }
    for f in sorted(TESTS.glob("test_*_async.py")):
        source = blocking(f.read_text()).replace("\nfrom brig import ", "\nfrom brig.sync import ")
        files[f.with_name(f.name.replace("_async", "_sync"))] = notice.format(f"tests/{f.name}") + source
    return files


def main() -> int:
    """Write the files, or compare them."""
    wrong = [f for f, text in generated().items() if not f.exists() or f.read_text() != text]
    if "--check" in sys.argv[1:]:
        for f in wrong:
            print(f"{f.name} is not up to date: run python tools/unasync.py", file=sys.stderr)
        return bool(wrong)
    for f, text in generated().items():
        f.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

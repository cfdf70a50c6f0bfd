"""A custom tool that keeps its state in its interpreter's variables. Its arguments
are values, and never become part of the code.

    python tool_state.py
"""

import json
from types import TracebackType
from typing import Any

from brig.sync import SandboxClient, SandboxSpec

TOOL = """
import collections, json
seen = collections.Counter()

def count_words(text):
    seen.update(text.lower().split())
    return {"total": seen.total(), "most": seen.most_common(1)[0]}
"""


class Tool:
    """A function that a model defined, and that can be called repeatedly."""

    def __init__(self, client: SandboxClient, source: str) -> None:
        self.sandbox = client.create(SandboxSpec("tool", image=None))
        defined = self.sandbox.run_code(source)
        if defined.error:
            raise ValueError(defined.error.message)

    def __enter__(self) -> "Tool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.sandbox.remove()

    def call(self, name: str, **arguments: Any) -> Any:
        self.sandbox.files.write("/workspace/arguments.json", json.dumps(arguments))
        result = self.sandbox.run_code(
            f"json.dump({name}(**json.load(open('/workspace/arguments.json'))), open('/workspace/value.json', 'w'))"
        )
        if result.error:
            raise RuntimeError(f"{result.error.name}: {result.error.message}")
        # The result is data; nothing in it can run here.
        return json.loads(self.sandbox.files.read_text("/workspace/value.json"))


def main() -> None:
    with SandboxClient() as client, Tool(client, TOOL) as tool:
        print(tool.call("count_words", text="the cat and the dog"))
        print(tool.call("count_words", text='the "); import os; os.abort() #'))
        try:
            tool.call("count_words", text=7)
        except RuntimeError as error:
            print(f"refused: {error}")
        print(tool.call("count_words", text="again"))


if __name__ == "__main__":
    main()

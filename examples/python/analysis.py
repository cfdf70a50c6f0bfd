"""An agent that analyses data. The model's code keeps its variables from step to
step, and Brig returns the figures that it draws.

    python analysis.py [folder for the figures]
"""

import base64
import pathlib
import sys

from brig.sync import SandboxClient, SandboxSpec

SALES = "month,north,south\n" + "".join(f"{m},{100 + 7 * m},{160 - 5 * m}\n" for m in range(1, 13))

# The answers of a model. The second one fails, and the third one corrects it.
STEPS = [
    "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nlen(rows)",
    "sum(row['north'] for row in rows)",
    "sum(int(row['north']) for row in rows)",
    """
import matplotlib.pyplot as plt
for region in ("north", "south"):
    plt.plot([int(row[region]) for row in rows], label=region)
plt.title("Sales")
legend = plt.legend()
""",
]


def main(folder: pathlib.Path) -> None:
    figures = 0
    with SandboxClient() as client, client.create(SandboxSpec("analysis", image=None)) as sandbox:
        sandbox.files.write("/workspace/sales.csv", SALES)
        for step in STEPS:
            result = sandbox.run_code(step)
            if result.error:
                # The traceback has the line of the code, so that a model can find it.
                print(f"error: {result.error.name}: {result.error.message}")
            elif result.text:
                print(f"value: {result.text}")
            for rich in result.results:
                if png := rich.data.get("image/png"):
                    figures += 1
                    file = folder / f"figure-{figures}.png"
                    file.write_bytes(base64.b64decode(png))
                    print(f"figure: {file.name}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))

"""Writes a wheel into the folder in the argument."""
import sys
import zipfile

INFO = "brigtest-1.0.dist-info/"
FILES = {
    "brigtest.py": "def word():\n    return 'a word from a wheel'\n",
    INFO + "METADATA": "Metadata-Version: 2.1\nName: brigtest\nVersion: 1.0\n",
    INFO + "WHEEL": "Wheel-Version: 1.0\nGenerator: brig\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
FILES[INFO + "RECORD"] = "".join("%s,,\n" % name for name in [*FILES, INFO + "RECORD"])
with zipfile.ZipFile(sys.argv[1] + "/brigtest-1.0-py3-none-any.whl", "w") as z:
    for name, text in FILES.items():
        z.writestr(zipfile.ZipInfo(name), text)  # the same bytes at any time

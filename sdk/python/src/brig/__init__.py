"""Sandboxes for untrusted code.

This module is asynchronous. :mod:`brig.sync` has the same names with blocking
calls::

    from brig import SandboxClient, SandboxSpec

    async with SandboxClient() as client:
        async with await client.create(SandboxSpec("one", image=None)) as sandbox:
            print((await sandbox.shell("echo hi")).stdout)
"""

from . import _errors, _nouns
from ._async._client import SandboxClient
from ._async._connection import Connection
from ._async._context import CodeContext
from ._async._files import Files
from ._async._handle import SandboxHandle
from ._async._process import Process
from ._async._stream import CodeStream, FileWatch, OutputStream, RunStream
from ._async._volume import VolumeFiles
from ._errors import *
from ._nouns import *

__version__ = "0.1.0"

__all__ = [
    "CodeContext",
    "CodeStream",
    "Connection",
    "FileWatch",
    "Files",
    "OutputStream",
    "Process",
    "RunStream",
    "SandboxClient",
    "SandboxHandle",
    "VolumeFiles",
]
__all__ += _errors.__all__
__all__ += _nouns.__all__

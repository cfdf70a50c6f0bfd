"""The names of :mod:`brig`, with blocking calls::

from brig.sync import SandboxClient

with SandboxClient() as client:
    print(client.run_python("print(6 * 7)", image=None).stdout)
"""

from . import _errors, _nouns
from ._errors import *
from ._nouns import *
from ._sync._client import SandboxClient
from ._sync._connection import Connection
from ._sync._context import CodeContext
from ._sync._files import Files
from ._sync._handle import SandboxHandle
from ._sync._process import Process
from ._sync._stream import CodeStream, FileWatch, OutputStream, RunStream
from ._sync._volume import VolumeFiles

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

"""The source of the package. tools/unasync.py generates :mod:`brig._sync` from it."""

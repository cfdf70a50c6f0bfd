"""The package's one source: :mod:`brig._sync` is made of it by tools/unasync.py."""

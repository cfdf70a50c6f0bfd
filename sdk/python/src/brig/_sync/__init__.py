"""Made of :mod:`brig._async` by tools/unasync.py, but for what blocks by itself."""

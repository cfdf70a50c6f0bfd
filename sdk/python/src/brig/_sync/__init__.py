"""Generated from :mod:`brig._async` by tools/unasync.py, except _thread.py."""

# Runs one program: /tmp/.brig/main.py, with main(**arguments) called when
# arguments were given, or when main is defined and the program does not use
# it itself. The value goes to descriptor 3 as JSON, apart from the output.
import os
import sys


def _run(base):
    os.set_inheritable(3, False)
    with open(base + "/main.py", "rb") as f:
        raw = f.read()
    arguments = None
    if os.path.exists(base + "/arguments.json"):
        import json

        with open(base + "/arguments.json", "rb") as f:
            arguments = json.load(f)

    # Lines appear when they are printed, also when time runs out.
    sys.stdout.reconfigure(line_buffering=True)
    sys.argv = ["main.py"]
    sys.path[0] = os.getcwd()
    import linecache
    import types

    module = types.ModuleType("__main__" if arguments is None else "main")
    module.__file__ = "main.py"
    module.__builtins__ = __builtins__
    sys.modules[module.__name__] = module

    def send(answer):
        # Not at the top: the smallest Pythons of Debian have no json.
        import json

        data = json.dumps(answer, allow_nan=False).encode()
        while data:
            data = data[os.write(3, data):]

    def fail(exc):
        import traceback

        trace = exc.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(exc), exc, trace))
        sys.stdout.flush()
        sys.stderr.write(text)
        sys.stderr.flush()
        try:
            import json  # noqa: F401
        except ImportError:
            return 1
        send({"error": {"name": type(exc).__name__, "message": str(exc)[:4000], "traceback": text[-20000:]}})
        return 1

    try:
        source = raw.decode("utf-8-sig")
        # Tracebacks show the program's own lines.
        linecache.cache["main.py"] = (len(source), None, source.splitlines(True), "main.py")
        code = compile(source, "main.py", "exec")
        exec(code, module.__dict__)
        main = module.__dict__.get("main")
        if not callable(main):
            if arguments is not None:
                raise NameError("arguments were given, but the program defines no function called main")
            return 0
        if arguments is None and _uses_main(code):
            return 0
        value = main(**(arguments or {}))
        if hasattr(value, "__await__"):
            import asyncio

            async def wait(awaitable):
                return await awaitable

            value = asyncio.run(wait(value))
        try:
            send({"value": value})
        except (TypeError, ValueError, RecursionError) as exc:
            raise TypeError("main returned a value that JSON cannot carry: %s" % exc) from None
        return 0
    except SystemExit:
        raise
    except BaseException as exc:
        return fail(exc)


def _uses_main(code):
    """Tell whether module-level code reads the name main, as scripts do."""
    import opcode

    load, extend = opcode.opmap["LOAD_NAME"], opcode.EXTENDED_ARG
    arg = 0
    for i in range(0, len(code.co_code), 2):
        op, low = code.co_code[i], code.co_code[i + 1]
        arg = arg << 8 | low
        if op == extend:
            continue
        if op == load and code.co_names[arg] == "main":
            return True
        arg = 0
    return False


sys.exit(_run(sys.argv[1]))

def __brig(order):
    # Runs one program and prints how it ended, after a mark. The output is
    # redirected to files: kernels change the data that a program writes to the streams,
    # and files can be read after the program has ended.
    import base64
    import builtins
    import contextlib
    import io
    import json
    import linecache
    import os
    import sys
    import traceback
    import types

    def reads(code):
        # Return the names that module-level code reads.
        import dis

        return {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_NAME"}

    class Redirect:
        # Redirects both streams and their descriptors to files.
        def __init__(self, name):
            self.names = [name + "-out", name + "-err"]
            self.streams = sys.stdout, sys.stderr
            for s in self.streams:
                s.flush()
            self.saved = [os.dup(1), os.dup(2)]
            for fd, name in enumerate(self.names, 1):
                file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
                os.dup2(file, fd)
                os.close(file)
            sys.stdout, sys.stderr = [io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), "utf-8", "backslashreplace", line_buffering=True, write_through=True) for fd in (1, 2)]

        def close(self):
            for s in sys.stdout, sys.stderr:
                try:
                    s.flush()
                except Exception:
                    pass
            sys.stdout, sys.stderr = self.streams
            for fd, saved in enumerate(self.saved, 1):
                os.dup2(saved, fd)
                os.close(saved)

        def read(self, which, limit):
            with open(self.names[which], "rb") as f:
                total = os.fstat(f.fileno()).st_size
                head = f.read(limit if total <= limit else limit - limit // 2)
                f.seek(max(len(head), total - limit // 2))
                tail = f.read(limit // 2)
            os.remove(self.names[which])
            return [base64.b64encode(head).decode("ascii"), base64.b64encode(tail).decode("ascii"), total]

    order = json.loads(base64.b64decode(order).decode("utf-8"))
    source, arguments = order["source"], order["arguments"]
    end = {"code": 0, "dir": os.path.join(os.getcwd(), "artifacts"), "artifacts": []}
    module = types.ModuleType("__main__" if arguments is None else "main")
    module.__builtins__ = builtins
    module.__file__ = "main.py"
    linecache.cache["main.py"] = (len(source), None, source.splitlines(True), "main.py")
    redirect = Redirect(order["kept"])
    before, sys.modules["__main__"] = sys.modules.get("__main__"), module
    argv, sys.argv = sys.argv, ["main.py"]
    if order["artifacts"]:  # programs expect the directory
        with contextlib.suppress(OSError):
            os.mkdir(end["dir"])
    try:
        code = compile(source.lstrip("\ufeff"), "main.py", "exec", dont_inherit=True)
        exec(code, module.__dict__)
        main = module.__dict__.get("main")
        if not callable(main):
            if arguments is not None:
                raise NameError("arguments were given, but the program defines no function called main")
        elif arguments is not None or "main" not in reads(code):
            value = main(**(arguments or {}))
            if hasattr(value, "__await__"):
                import asyncio

                async def wait(awaitable):
                    return await awaitable

                value = asyncio.run(wait(value))
            try:
                json.dumps(value, allow_nan=False)
                end["value"] = value
            except (TypeError, ValueError, RecursionError) as exc:
                raise TypeError("main returned a value that JSON cannot carry: %s" % exc) from None
    except SystemExit as exc:
        if exc.code is None:
            end["code"] = 0
        elif isinstance(exc.code, int):
            end["code"] = exc.code & 0xFF
        else:
            print(exc.code, file=sys.stderr)
            end["code"] = 1
    except BaseException as exc:
        trace = exc.__traceback__.tb_next if exc.__traceback__ else None
        text = "".join(traceback.format_exception(type(exc), exc, trace))
        sys.stderr.write(text)
        end["code"] = 1
        end["Error"] = {"name": type(exc).__name__, "message": str(exc)[:4000], "traceback": text[-20000:]}
    finally:
        sys.argv = argv
        if before is not None:
            sys.modules["__main__"] = before
        redirect.close()
    end["stdout"], end["stderr"] = redirect.read(0, order["limit"]), redirect.read(1, order["limit"])
    for folder, folders, names in os.walk(end["dir"]):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(folder, name)
            if os.path.splitext(name)[1].lower() in order["extensions"] and os.path.isfile(file) and not os.path.islink(file):
                end["artifacts"].append(os.path.relpath(file, end["dir"]))
    end = json.dumps(end).encode("ascii")
    if len(end) < 16384:
        # A longer text may not arrive in one piece.
        sys.stdout.write(order["mark"] + ":" + base64.b64encode(end).decode("ascii") + ";")
        sys.stdout.flush()
        return
    with open(order["kept"] + "-end", "wb") as f:
        f.write(end)


__brig("BRIG_ORDER")

"""e2b-code-interpreter 1.x with a domain."""
import socket
import sys
import traceback

# No name server knows the domain of the test.
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve("127.0.0.1" if str(host).endswith("e2b.test") else host, *rest, **more)

from e2b_code_interpreter import Sandbox  # noqa: E402

want = sys.argv[1]
sandbox = Sandbox(timeout=120)
try:
    if want == "open":
        out = []
        assert sandbox.run_code("x = 41; x + 1").text == "42"
        assert sandbox.run_code("print('hi')", on_stdout=lambda m: out.append(m.line)).error is None and "".join(out) == "hi\n", out
        assert sandbox.run_code("1/0").error.name == "ZeroDivisionError"
        assert sandbox.commands.run("echo shell").stdout == "shell\n"
        sandbox.files.write("/home/user/f", "text")
        assert sandbox.run_code("open('/home/user/f').read()").text == "text"
    else:
        try:
            sandbox.run_code("1")
        except Exception as e:
            assert "401" in str(e) or "unauthorized" in str(e).lower(), e
        else:
            raise AssertionError("code ran without a token")
    print("ok " + want)
except Exception:
    print("FAIL " + want + ": " + traceback.format_exc())
finally:
    sandbox.kill()

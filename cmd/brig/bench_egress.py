import json, socket, ssl, time
trust = ssl._create_unverified_context()
trust.set_alpn_protocols(["http/1.1"])
def ask(name, host, port, secure, path):
    begin = time.perf_counter()
    s = socket.create_connection((host, port), timeout=30)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if secure:
        s = trust.wrap_socket(s, server_hostname=name)
    s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (path, name)).encode())
    buf, got = bytearray(1 << 20), 0
    while n := s.recv_into(buf):
        got += n
    s.close()
    return time.perf_counter() - begin, got
def measure(name, host, port, secure, asks):
    return json.dumps({"ms": [1000 * ask(name, host, port, secure, "/small")[0] for _ in range(asks)],
                       "mb_per_s": [(lambda t, n: n / t / 1e6)(*ask(name, host, port, secure, "/large"))]})

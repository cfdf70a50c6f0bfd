"""A WebSocket server (RFC 6455) of the standard library alone, for websocket.mjs.

Its first message contains the request. Then it echoes each message,
except "count N", which makes it send N messages, and "close", which makes it
close with its own code."""
import base64, hashlib, json, socketserver, struct, sys

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        request = self.rfile.readline().decode()
        headers = {}
        while (line := self.rfile.readline().decode().strip()):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        key = headers.get("sec-websocket-key")
        if headers.get("upgrade", "").lower() != "websocket" or not key:
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept
        if protocol := headers.get("sec-websocket-protocol"):
            answer += b"\r\nSec-WebSocket-Protocol: " + protocol.split(",")[0].strip().encode()
        # In one write with the response, so that both arrive together.
        self.wfile.write(answer + b"\r\n\r\n" + frame(TEXT, json.dumps({"request": request.strip(), "headers": headers}).encode()))
        while True:
            kind, body = self.receive()
            if kind == CLOSE or body == b"close":
                self.wfile.write(frame(CLOSE, struct.pack(">H", 4001) + b"enough" if kind != CLOSE else body))
                return
            if kind == PING:
                self.wfile.write(frame(PONG, body))
            elif body.startswith(b"count "):
                for i in range(int(body[6:])):
                    self.wfile.write(frame(TEXT, b"%d" % i))
            elif kind != PONG:
                self.wfile.write(frame(kind, body))

    def receive(self):
        first, second = self.exactly(2)
        if not first & 0x80 or not second & 0x80:
            raise EOFError("a message in parts, or one that is not masked")
        size = second & 0x7F
        if size == 126:
            size, = struct.unpack(">H", self.exactly(2))
        elif size == 127:
            size, = struct.unpack(">Q", self.exactly(8))
        mask, body = self.exactly(4), self.exactly(size)
        whole = (mask * (size // 4 + 1))[:size]
        return first & 0xF, (int.from_bytes(body, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")

    def exactly(self, n):
        body = self.rfile.read(n)
        if len(body) < n:
            raise EOFError
        return body


def frame(kind, body):
    n = len(body)
    size = bytes([n]) if n < 126 else struct.pack(">BH", 126, n) if n < 1 << 16 else struct.pack(">BQ", 127, n)
    return bytes([0x80 | kind]) + size + body


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True

    def handle_error(self, *_):
        pass  # a client may disconnect without a close frame


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

package e2e

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// scenario is one method by which a guest, or another party on its behalf,
// could obtain the value of a brokered secret.
type scenario struct {
	id, name string
	code     string // code for an interpreter in the sandbox; it stores all responses
	places   []brig.SecretPlace
	plain    bool
	// kept is set if not even the host to which the secret is bound may receive the value,
	// because the value is not allowed in this part of a request, or the request is rejected.
	kept bool
	want string           // expected substring of the code's output
	spec string           // additional fields of the sandbox
	do   func(*secretLab) // called before the code runs
}

// secretPrelude defines the helpers for the scenarios' code.
const secretPrelude = `
import base64, json, os, socket, ssl, struct, subprocess, sys, time
import urllib.parse as up
T, A, B = os.environ["TOKEN"], "api.brig-test.com", "other.brig-test.com"
C, O = ssl.create_default_context(), ssl._create_unverified_context() # only what is looked at has a certificate of ours
AUTH = "Authorization: Bearer " + T + "\r\n"
seen = []
def show(b):
    if isinstance(b, str): b = b.encode("latin-1", "replace")
    seen.append(b)
    with open("/workspace/seen", "ab") as f: f.write(b)
    print(b.decode("latin-1")); return b
def raw(data, host=A, sni=None, port=443, tls=True, wait=2):
    if isinstance(data, str): data = data.encode()
    out = b""
    try:
        s = socket.create_connection((host, port), timeout=wait)
        if tls: s = (C if host == A else O).wrap_socket(s, server_hostname=sni or host)
        s.sendall(data)
        while True:
            b = s.recv(65536)
            if not b: break
            out += b
    except OSError as e: print(type(e).__name__, e)
    return show(out)
def ask(path="/plain", head=AUTH, body=b"", method="GET", host=A, **k):
    if isinstance(body, str): body = body.encode()
    if body: head += "Content-Length: %d\r\n" % len(body)
    return raw(("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n" % (method, path, host, head)).encode() + body, host, **k)
def chunks(*parts, end="0\r\n\r\n"): return "".join("%x\r\n%s\r\n" % (len(p), p) for p in parts) + end
def curl(*a): return show(subprocess.run(["curl", "-sS", "-i", "-k", "-m", "10", *a], capture_output=True).stdout)
`

func basicToken(user string) string {
	return "'Authorization: Basic ' + base64.b64encode(('" + user + ":' + T).encode()).decode() + '\\r\\n'"
}

// sendScenarios returns requests that contain the placeholder, in every part of
// a request.
func sendScenarios() []scenario {
	header, query, body := []brig.SecretPlace{brig.SecretHeader}, []brig.SecretPlace{brig.SecretQuery}, []brig.SecretPlace{brig.SecretBody}
	kind := func(k string) string { return "head='Content-Type: " + k + "\\r\\n'" }
	return []scenario{
		{id: "SEC-02", name: "bearer token, HTTP/1.1", code: `ask()`},
		{id: "SEC-02", name: "header of any name", code: `ask(head="X-Key: k=" + T + ";\r\n")`},
		{id: "SEC-02", name: "basic credentials", code: "ask(head=" + basicToken("me") + ")"},
		{id: "SEC-02", name: "cookie", code: `ask(head="Cookie: a=b; s=" + T + "\r\n")`},
		{id: "SEC-02", name: "query without leave", code: `ask("/plain?k=" + T, head="")`, kept: true, want: "200 OK"},
		{id: "SEC-02", name: "query", code: `ask("/plain?k=" + T, head="")`, places: query},
		{id: "SEC-02", name: "query, escaped", code: `ask("/plain?k=" + "".join("%%%02x" % ord(c) for c in T), head="")`, places: query},
		{id: "SEC-02", name: "path", code: `ask("/plain/" + T, head="")`, kept: true, want: "200 OK"},
		{id: "SEC-02", name: "body without leave", code: `ask(method="POST", body=T, head="")`, places: header, kept: true, want: "200 OK"},
		{id: "SEC-02", name: "body, text", code: `ask(method="POST", body="k=" + T, head="")`, places: body},
		{id: "SEC-02", name: "body, JSON", code: `ask(method="POST", body=json.dumps({"k": T}), ` + kind("application/json") + `)`, places: body},
		{id: "SEC-02", name: "body, form", code: `ask(method="POST", body="k=" + T, ` + kind("application/x-www-form-urlencoded") + `)`, places: body},
		{id: "SEC-02", name: "body, multipart", code: `ask(method="POST", body="--b\r\nContent-Disposition: form-data; name=k\r\n\r\n" + T + "\r\n--b--\r\n", ` + kind("multipart/form-data; boundary=b") + `)`, places: body},
		{id: "SEC-02", name: "body, chunks that divide it", code: `raw("POST /plain HTTP/1.1\r\nHost: " + A + "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks(T[:9], T[9:20], T[20:]))`, places: body},
		{id: "SEC-02", name: "body, longer than is read at once", code: `ask(method="POST", body="x" * 70000 + T + "y" * 70000, head="")`, places: body},
		{id: "SEC-02", name: "body, compressed", code: `import gzip; ask(method="POST", body=gzip.compress(T.encode()), head="Content-Encoding: gzip\r\n")`, places: body, kept: true, want: "200 OK"},
		{id: "SEC-02", name: "trailer", code: `raw("POST /plain HTTP/1.1\r\nHost: " + A + "\r\nConnection: close\r\nTrailer: X-Key\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks("a", end="0\r\nX-Key: " + T + "\r\n\r\n"))`, kept: true},
		{id: "SEC-02", name: "bearer token, HTTP/2", code: `curl("--http2", "-H", "Authorization: Bearer " + T, "https://" + A + "/plain")`, want: "HTTP/2 200"},
		{id: "SEC-02", name: "body, HTTP/2", code: `curl("--http2", "-d", "k=" + T, "https://" + A + "/plain")`, places: body, want: "HTTP/2 200"},
		{id: "SEC-02", name: "before 100 Continue", code: `ask(method="POST", body="k=" + T, head="Expect: 100-continue\r\n")`, places: body},
		{id: "SEC-02", name: "HEAD", code: `ask("/header", method="HEAD")`},
		{id: "SEC-02", name: "TRACE", code: `ask(method="TRACE")`},
		{id: "SEC-02", name: "OPTIONS, with the value in every header of the answer", code: `ask("/header", method="OPTIONS")`},
		{id: "SEC-02", name: "in the clear", code: `ask(port=80, tls=False)`, kept: true, want: "403 Forbidden"},
		{id: "SEC-02", name: "in the clear, body", code: `ask(method="POST", body=T, head="", port=80, tls=False)`, places: body, kept: true, want: "403 Forbidden"},
		{id: "SEC-02", name: "in the clear, with leave", code: `ask(port=80, tls=False)`, plain: true, want: "200 OK"},
		{id: "SEC-02", name: "to another host that is allowed", code: `ask(host=B); ask("/plain?k=" + T, host=B, method="POST", body=T)`, kept: true, want: "brig-secret-"},
		{id: "SEC-02", name: "to another host, in the clear", code: `ask(host=B, port=80, tls=False)`, kept: true, want: "brig-secret-"},
		{id: "SEC-02", name: "in capitals", code: `ask(head="X-Key: " + T.upper() + "\r\n")`, kept: true, want: "200 OK"},
		{id: "SEC-02", name: "placeholders of other sandboxes", code: `ask(head="X-Key: brig-secret-" + "a" * 32 + "\r\n")`, kept: true, want: "200 OK"},
	}
}

// echoScenarios returns scenarios in which the response contains the value.
func echoScenarios() (list []scenario) {
	for name := range encodings {
		list = append(list, scenario{id: "SEC-03", name: "answer, " + name, code: `ask("/` + name + `")`, want: "200 OK"})
	}
	for _, name := range []string{"header", "cookie", "hints", "bytes", "gzip", "deflate", "trailer"} {
		list = append(list, scenario{id: "SEC-03", name: "answer, " + name, code: `ask("/` + name + `")`, want: "200 OK"},
			scenario{id: "SEC-03", name: "HTTP/2 answer, " + name, code: `curl("--http2", "-H", "Authorization: Bearer " + T, "https://" + A + "/` + name + `")`, want: "HTTP/2 200"})
	}
	shake := `raw("GET /socket?%s HTTP/1.1\r\nHost: " + A + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + AUTH + "\r\n")`
	return append(list, []scenario{
		{id: "SEC-03", name: "WebSocket, one frame", code: strings.Replace(shake, "%s", "one", 1), want: "101 Switching"},
		{id: "SEC-03", name: "WebSocket, a frame for each byte", code: strings.Replace(shake, "%s", "frames", 1), want: "101 Switching"},
		{id: "SEC-03", name: "answer, brotli", code: `ask("/br")`, want: "502 Bad Gateway"},
		{id: "SEC-03", name: "answer, an error page", code: `ask("/error")`, want: "500 Internal"},
		{id: "SEC-03", name: "answer, cut off within the value", code: `ask("/cut")`},
		{id: "SEC-03", name: "answer, in halves by ranges", code: `n = 20; ask("/range", head=AUTH + "Range: bytes=0-%d\r\n" % n); ask("/range", head=AUTH + "Range: bytes=%d-99\r\n" % (n + 1))`, want: "200 OK"},
		{id: "SEC-03", name: "answer, brotli asked for", code: `ask("/plain", head=AUTH + "Accept-Encoding: br, gzip, zstd\r\n")`, want: "200 OK"},
		{id: "SEC-03", name: "answer to a request without the placeholder", code: `ask("/plain", head="")`, kept: true, want: "200 OK"},
		{id: "SEC-03", name: "redirect to another host, followed", code: `curl("-L", "--location-trusted", "-H", "Authorization: Bearer " + T, "https://" + A + "/away")`, want: "307"},
		{id: "SEC-03", name: "redirect back from another host, followed", code: `curl("-L", "--location-trusted", "-H", "Authorization: Bearer " + T, "https://" + B + "/back")`, want: "302"},
		{id: "SEC-03", name: "answer in the clear, with leave", code: `ask("/base64", port=80, tls=False)`, plain: true, want: "200 OK"},
		{id: "SEC-03", name: "rotation during a request", code: `ask("/slow"); ask("/slow")`, do: func(l *secretLab) {
			l.hosts.duringResponse = func() { l.put(l.secret, l.newValue(), "") }
		}, want: "200 OK"},
		{id: "SEC-03", name: "removal during a request", code: `ask("/slow"); ask("/plain")`, do: func(l *secretLab) {
			l.hosts.duringResponse = func() { l.do(http.MethodDelete, "/v1/secrets/"+l.secret, "") }
		}, want: "200 OK"},
	}...)
}

// wideningScenarios returns changes of a secret that widen its use while a sandbox has it. A
// change without the value is rejected; a change with the value applies only to later sandboxes.
func wideningScenarios() (list []scenario) {
	for _, c := range []struct{ name, fields, code string }{
		{"another host", `"hosts":["` + otherHost + `"]`, `ask(host=B)`},
		{"a further host", `"hosts":["` + boundHost + `","*.brig-test.com"]`, `ask(host=B)`},
		{"no hosts", `"hosts":[],"reveal":true`, `show(subprocess.run(["env"], capture_output=True).stdout)`},
		{"a place", `"places":["header","query","body"]`, `ask("/plain?k=" + T, head="", method="POST", body=T)`},
		{"plain HTTP", `"plain":true`, `ask(port=80, tls=False)`},
	} {
		change := func(l *secretLab, value string, want int) {
			l.t.Helper()
			status, resp := l.do(http.MethodPut, "/v1/secrets/"+l.secret, "{"+value+c.fields+"}")
			if status != want || want == 400 && !strings.Contains(resp, "give the value again") {
				l.t.Errorf("the change: %d %s", status, resp)
			}
		}
		list = append(list, scenario{id: "SEC-02", name: "a change without the value, " + c.name, code: c.code, kept: true, do: func(l *secretLab) {
			change(l, "", 400)
		}}, scenario{id: "SEC-02", name: "a change with the value, " + c.name, code: c.code, kept: true, do: func(l *secretLab) {
			l.value = l.newValue()
			l.hosts.begin(l.value) // the bound host echoes this value
			change(l, `"value":`+strconv.Quote(l.value)+",", 200)
			if status, resp := l.do("POST", l.path("/exec"), `{"shell":"env"}`); status != 200 || !strings.Contains(resp, "TOKEN=brig-secret-") {
				l.t.Errorf("the next command: %d %s", status, resp)
			}
		}})
	}
	return list
}

// confusionScenarios returns requests that are malformed, or that some parsers could attribute to
// another host.
func confusionScenarios() []scenario {
	refused := func(name, request, want string) scenario {
		return scenario{id: "SEC-02", name: name, code: `raw(` + request + `)`, kept: true, want: want}
	}
	return []scenario{
		refused("TLS for another name", `"GET /plain HTTP/1.1\r\nHost: "+A+"\r\n"+AUTH+"\r\n", sni=B`, ""),
		refused("TLS of the other host, Host of the bound one", `"GET /mirror HTTP/1.1\r\nHost: "+A+"\r\nConnection: close\r\n"+AUTH+"\r\n", host=B`, "brig-secret-"),
		refused("Host of the other one", `"GET /plain HTTP/1.1\r\nHost: "+B+"\r\nConnection: close\r\n"+AUTH+"\r\n"`, "421"),
		refused("target of the other one", `"GET https://"+B+"/plain HTTP/1.1\r\nHost: "+A+"\r\nConnection: close\r\n"+AUTH+"\r\n"`, "4"),
		{id: "SEC-02", name: "absolute target of its own", code: `raw("GET https://"+A+"/plain HTTP/1.1\r\nHost: "+A+"\r\nConnection: close\r\n"+AUTH+"\r\n")`, want: "200 OK"},
		refused("CONNECT", `"CONNECT "+B+":443 HTTP/1.1\r\nHost: "+A+"\r\n"+AUTH+"\r\n"`, "4"),
		{id: "SEC-02", name: "two requests in a row", code: `raw(("GET /plain HTTP/1.1\r\nHost: "+A+"\r\n"+AUTH+"\r\n") + "GET /base64 HTTP/1.1\r\nHost: "+A+"\r\nConnection: close\r\n"+AUTH+"\r\n")`, want: "200 OK"},
		refused("length and chunks", `"POST /plain HTTP/1.1\r\nHost: "+A+"\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"+AUTH+"\r\n0\r\n\r\nGET /plain HTTP/1.1\r\nHost: "+B+"\r\n\r\n"`, "400"),
		refused("chunks and length", `"POST /plain HTTP/1.1\r\nHost: "+A+"\r\nTransfer-Encoding: chunked\r\nContent-Length: 60\r\n"+AUTH+"\r\n0\r\n\r\nGET /plain HTTP/1.1\r\nHost: "+B+"\r\n\r\n"`, "400"),
		refused("folded header", `"GET /plain HTTP/1.1\r\nHost: "+A+"\r\nX: a\r\n "+AUTH+"\r\n"`, "400"),
		refused("two lengths", `"POST /plain HTTP/1.1\r\nHost: "+A+"\r\nContent-Length: 1\r\nContent-Length: 2\r\n"+AUTH+"\r\nab"`, "400"),
		refused("bare line feeds", `"GET /plain HTTP/1.1\nHost: "+A+"\n"+AUTH+"\n\n"`, "400"),
		refused("HTTP in the clear on TLS's port", `"GET /plain HTTP/1.1\r\nHost: "+A+":443\r\nConnection: close\r\n"+AUTH+"\r\n", tls=False`, ""),
		refused("name of a field", `"GET /plain HTTP/1.1\r\nHost: "+A+"\r\nConnection: close\r\nX-"+T+": a\r\n\r\n"`, "200 OK"),
	}
}

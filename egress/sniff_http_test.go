package egress

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig/internal/attack"
)

// sniffPieces sends text as the first bytes of a connection, in pieces. It returns
// the bytes that pass, or the reason if they must not.
func sniffPieces(t *testing.T, pieces ...string) (first, reason string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			defer there.Close()
			for _, p := range pieces {
				if p == "" {
					time.Sleep(2 * singleWordTimeout)
				} else if _, err := there.Write([]byte(p)); err != nil {
					return
				}
			}
			b := make([]byte, 1)
			_, _ = there.Read(b) // until the connection is closed
		}()
		held := 0
		out := ""
		b, w := sniff(here, labHost, sniffer{
			reserveConn: func() bool { held++; return true }, releaseConn: func() { held-- },
			out: func(b []byte) error { out += string(b); return nil },
		})
		here.Close()
		<-sent
		first, reason = out+string(b), w
		if held != 0 {
			t.Errorf("memory is held %d times", held)
		}
	})
	return first, reason
}

// The first request of a connection must be for the connection's host,
// regardless of its method and syntax.
func TestFirstRequestMustNameConnectionHost(t *testing.T) {
	const good, evil = "api.test", "evil.test"
	const warning = "\x15\x03\x01\x00\x02\x01\x5a" // Go's servers skip it, and so do others
	request := func(method, host string) string {
		return method + " /x HTTP/1.1\r\nHost: " + host + "\r\nAccept: */*\r\n\r\n"
	}
	h2 := func(list ...string) string {
		return preface + encodeFrame(4, 0, "") + encodeFrame(1, 5, encodeFields(list...))
	}
	requestFields := func(authority string) []string {
		return []string{":method", "PROPFIND", ":scheme", "http", ":path", "/", ":authority", authority}
	}
	for _, c := range []struct {
		name, text string
		good       bool
	}{
		{"GET", request("GET", good), true},
		{"a port", request("GET", good+":8080"), true},
		{"an invalid port", request("GET", good+":evil"), false},
		{"GET elsewhere", request("GET", evil), false},
		{"PROPFIND", request("PROPFIND", good), true},
		{"PROPFIND elsewhere", request("PROPFIND", evil), false},
		{"lower case elsewhere", request("get", evil), false},
		{"mixed case elsewhere", request("gEt", evil), false},
		{"a method of one's own", request("M-SEARCH", good), true},
		{"a method of one's own, elsewhere", request("X!#$%&'*+.^_`|~9", evil), false},
		{"a longer method elsewhere", request(strings.Repeat("A", maxMethod), evil), false},
		{"connect in lower case", "connect " + good + ":443 HTTP/1.1\r\nHost: " + good + "\r\n\r\n", false},
		{"an empty line before", "\r\n" + request("GET", evil), false},
		{"line feeds before", "\n\n" + request("PUT", evil), false},
		{"blanks before", "  " + request("GET", evil), false},
		{"a tab between", "GET\t/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a tab between, host and all", "GET\t/ HTTP/1.1\r\nHost: api.test\r\n\r\n", false},
		{"two blanks", "GET  / HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a vertical tab", "GET\v/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a return between", "GET\r/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a return before", "\rGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a file separator", "GET\x1c/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a unit separator", "GET\x1f/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a unit separator before", "\x1fGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a control character between", "GET\x01/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a next line of Latin-1", "GET\x85/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a blank of Latin-1", "GET\xa0/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a blank of Latin-1 before", "\xa0GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"no version, a return", "GET\r/\r\n", false},
		{"http in lower case", "GET / http/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a strange version", "GET / HTTP/3.7\r\nHost: evil.test\r\n\r\n", false},
		{"no version", "GET http://evil.test/\r\n", false},
		{"no version, a path", "get /\r\n", false},
		{"two hosts", "GET / HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n", false},
		{"two hosts, the other way", "GET / HTTP/1.1\r\nHost: evil.test\r\nHost: api.test\r\n\r\n", false},
		{"the same host twice", "GET / HTTP/1.1\r\nHost: api.test\r\nHost: api.test\r\n\r\n", false},
		{"a blank in the name", "GET / HTTP/1.1\r\nHost: api.test\r\nHost : evil.test\r\n\r\n", false},
		{"a folded line", "GET / HTTP/1.1\r\nHost: api.test\r\n .evil.test\r\n\r\n", false},
		{"line feeds alone", "GET / HTTP/1.1\nHost: api.test\n\n", false},
		{"a return inside", "GET / HTTP/1.1\r\nX: y\rHost: evil.test\r\nHost: api.test\r\n\r\n", false},
		{"an absolute target", "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", true},
		{"an absolute target elsewhere", "PROPFIND http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", false},
		{"a user in the target", "GET http://evil.test@api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", false},
		{"no host", "GET / HTTP/1.0\r\n\r\n", false},
		{"a dot at the end", request("GET", good+"."), true},
		{"HTTP/2", h2(requestFields(good)...), true},
		{"HTTP/2 elsewhere", h2(requestFields(evil)...), false},
		{"HTTP/2 with another host beside", h2(append(requestFields(good), "host", evil)...), false},
		{"HTTP/2 without a host", h2(":method", "GET", ":scheme", "http", ":path", "/"), false},
		{"invalid HTTP/2", preface + "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		// Bytes that are not HTTP are sent on unchanged.
		{"SSH", "SSH-2.0-OpenSSH_9.6\r\n", true},
		{"SMTP", "EHLO evil.test\r\n", true},
		{"Redis", "*1\r\n$4\r\nPING\r\n", true},
		{"Redis in a line", "PING\r\n", true},
		{"memcached", "get HTTP\r\n", true},
		{"PostgreSQL", "\x00\x00\x00\x08\x04\xd2\x16\x2f", true},
		{"git", "0030git-upload-pack /project.git\x00host=evil.test\x00", true},
		{"AMQP", "AMQP\x00\x00\x09\x01", true},
		{"text", "some data some data\n", true},
		{"text without a line", "some data some data", false},
		{"LDAP", "0\f\x02\x01\x01`\x07\x02\x01\x03\x04\x00\x80\x00", true},
		{"LDAP with a name", "0 \x02\x01\x01`\x1b\x02\x01\x03\x04\x0ecn=x,dc=a,dc=bc\x80\x06secret", true},
		{"LDAP with StartTLS", "0\x1d\x02\x01\x01w\x18\x80\x161.3.6.1.4.1.1466.20037", true},
		{"LDAP with a control", "0\x1b\x02\x01\x01`\x07\x02\x01\x03\x04\x00\x80\x00\xa0\x0d0\x0b\x04\x09controlab", true},
		{"LDAP, and a request", "0 \x02 HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a message of LDAP, and a request", "0 \x02\x01\x01 HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"AMQP 1.0", "AMQP\x03\x01\x00\x00", true},
		{"AMQP, and a request", "AMQP\x03/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"MongoDB", "E\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xdd\x07\x00\x00", true},
		{"git with a NUL, and a request", "0032git-upload-pack /\x00 HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"git, and a request", "0032git-upload-pack /x HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a control character", "GET /\x01 HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a NUL", "GET /\x00 HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"words", "GET a b HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a digit", "9GET /\x01 HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a long target", "GET " + strings.Repeat("a", 400) + " HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a path with blanks", "GET /a b HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"a TLS warning before TLS elsewhere", warning + string(clientHello(t, evil)), false},
		{"a TLS warning before TLS", warning + string(clientHello(t, good)), true},
		{"TLS elsewhere", string(clientHello(t, evil)), false},
		{"a change of ciphers before TLS elsewhere", "\x14\x03\x03\x00\x01\x01" + string(clientHello(t, evil)), false},
		{"application data before TLS elsewhere", "\x17\x03\x03\x00\x01x" + string(clientHello(t, evil)), false},
		{"a heartbeat before TLS elsewhere", "\x18\x03\x03\x00\x01\x01" + string(clientHello(t, evil)), false},
		{"what begins as a record might", "\x15\x10\x04MQTT", true},
		{"a long word", strings.Repeat("A", maxMethod+1), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.good {
				attack.Case(t, "NET-11", "a first request: "+c.name)
			}
			var letters []string
			for i := range len(c.text) {
				letters = append(letters, c.text[i:i+1])
			}
			word := strings.IndexAny(c.text, " \x00") // the client pauses after it
			if word < 0 {
				word = 0
			}
			ways := map[string][]string{"at once": {c.text}, "letter by letter": letters, "with a pause": {c.text[:word], "", c.text[word:]}}
			for i := range min(len(c.text), 120) {
				if !c.good {
					ways[fmt.Sprint("in two at ", i)] = []string{c.text[:i], c.text[i:]}
					ways[fmt.Sprint("in two with a pause at ", i)] = []string{c.text[:i], "", c.text[i:]}
				}
			}
			for how, pieces := range ways {
				first, reason := sniffPieces(t, pieces...)
				if (reason == "") != c.good {
					t.Errorf("%s: refused as %q", how, reason)
				}
				if !strings.HasPrefix(c.text, first) || c.good && how == "at once" && first != c.text {
					t.Errorf("%s: %q goes on", how, first)
				}
			}
		})
	}
}

package egress

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/brig-run/brig"
)

func allowHosts(hosts ...string) *brig.Egress {
	e := &brig.Egress{}
	for _, h := range hosts {
		r := brig.EgressRule{Host: h}
		if _, err := brig.ParseNetwork(h); err == nil {
			r = brig.EgressRule{CIDR: h}
		}
		e.Rules = append(e.Rules, r)
	}
	return e
}

func echoServer(c net.Conn) { _, _ = io.Copy(c, c) }

// exchangeText sends text and returns the complete response.
func exchangeText(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, text)
	_ = closeWrite(c)
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestHostAllowedByNameIsReachable(t *testing.T) {
	l := newWorld(t, allowHosts("api.test", "*.cdn.test"))
	l.name("api.test", "203.0.113.5")
	l.name("a.cdn.test", "203.0.113.6")
	l.serve("203.0.113.5:5432", echoServer)
	l.serve("203.0.113.6:9000", echoServer)
	for _, c := range []struct {
		name string
		port int
	}{{"api.test", 5432}, {"a.cdn.test", 9000}} {
		conn, err := l.connectName(c.name, c.port)
		if err != nil {
			t.Fatal(c.name, err)
		}
		long := strings.Repeat("some data\n", 50_000)
		if got := exchangeText(t, conn, long); got != long {
			t.Errorf("%s: %d of %d bytes came back", c.name, len(got), len(long))
		}
	}
	sent, received := l.Usage()
	if sent != received || sent != 1_000_000 {
		t.Errorf("usage is %d and %d bytes, want 1,000,000", sent, received)
	}
	if _, err := l.connectName("api.test", 5433); err == nil {
		t.Error("a port where nobody listens is open")
	}
}

func TestOtherTrafficIsBlocked(t *testing.T) {
	l := newWorld(t, allowHosts("api.test"))
	l.wait = 2 * time.Second // most of these get no answer
	l.name("api.test", "203.0.113.5")
	l.name("evil.test", "203.0.113.66")
	for _, name := range []string{"evil.test", "xapi.test", "api.test.evil.test", "secret.exfil.test", "localhost", "metadata.google.internal"} {
		if a, ok := l.address(name); ok {
			t.Errorf("%s resolves to %s", name, a)
		}
	}
	for _, addr := range []string{
		"203.0.113.66", "203.0.113.5", "8.8.8.8", "10.0.0.1", "127.0.0.1", "169.254.169.254", "100.100.100.200",
		"198.18.0.1", "198.18.0.16", "198.18.0.77", "198.19.255.254", "192.168.1.1", "224.0.0.1", "255.255.255.255", "0.0.0.0",
	} {
		l.serve(addr+":80", echoServer)
		if c, err := l.dial(netip.MustParseAddr(addr), 80); err == nil {
			c.Close()
			t.Errorf("%s is connected to", addr)
		}
	}
	if dialed, queries := l.outsideTraffic(); len(dialed)+len(queries) > 0 {
		t.Errorf("dialed %q, asked for %q", dialed, queries)
	}
}

// The addresses that a name resolves to are checked, and only checked addresses are dialed.
func TestResolvedAddressesAreChecked(t *testing.T) {
	l := newWorld(t, allowHosts("rebind.test", "mixed.test", "own.test", "v6.test"))
	l.alternate = true
	l.name("rebind.test", "203.0.113.5", "127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::7f00:1")
	l.serve("203.0.113.5:80", echoServer)
	for _, a := range []string{"127.0.0.1:80", "10.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fd00:ec2::254]:80", "[64:ff9b::7f00:1]:80", "203.0.113.99:80"} {
		l.serve(a, echoServer)
	}
	good := 0
	for range 80 {
		if c, err := l.connectName("rebind.test", 80); err == nil {
			c.Close()
			good++
		}
	}
	if good != 10 {
		t.Errorf("%d of 80 connections were made, want the 10 to the public address", good)
	}
	l.alternate = false
	l.name("mixed.test", "10.0.0.1", "203.0.113.5", "127.0.0.1")
	c, err := l.connectName("mixed.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.name("own.test", "203.0.113.99")
	if c, err := l.connectName("own.test", 80); err == nil {
		c.Close()
		t.Error("an address of this machine is reached by a name")
	}
	dialed, _ := l.outsideTraffic()
	for _, a := range dialed {
		if a != "203.0.113.5:80" {
			t.Errorf("%s was dialed", a)
		}
	}
	named := allowHosts("rebind.test", "own.test", "10.0.0.0/8", "127.0.0.1", "203.0.113.99")
	l.Update(*named)
	if c, err := l.connectName("own.test", 80); err == nil {
		c.Close()
		t.Error("an address of this machine that a member's rule names is reached by a name")
	}
	// As a control, an operator's rules that contain the addresses allow them.
	named.Operator = true
	l.Update(*named)
	if c, err := l.connectName("own.test", 80); err != nil {
		t.Error("an address of this machine that a rule names:", err)
	} else {
		c.Close()
	}
}

func TestAddressRulesApplyToDirectConnections(t *testing.T) {
	l := newWorld(t, allowHosts("203.0.113.0/24", "10.1.0.0/16"))
	for _, a := range []string{"203.0.113.5:22", "10.1.2.3:22", "10.2.0.1:22", "203.0.113.99:22"} {
		l.serve(a, echoServer)
	}
	for addr, want := range map[string]bool{"203.0.113.5": true, "10.1.2.3": true, "10.2.0.1": false, "8.8.8.8": false, "203.0.113.99": false} {
		c, err := l.dial(netip.MustParseAddr(addr), 22)
		if (err == nil) != want {
			t.Errorf("%s: %v", addr, err)
		}
		if err == nil {
			if got := exchangeText(t, c, "hello"); got != "hello" {
				t.Errorf("%s said %q", addr, got)
			}
		}
	}
}

// hello returns a TLS client hello for a name.
func hello(t *testing.T, name string) string {
	t.Helper()
	return string(clientHello(t, name))
}

func TestFirstBytesMustMatchHost(t *testing.T) {
	l := newWorld(t, allowHosts("api.test"))
	l.name("api.test", "203.0.113.5")
	arrived := make(chan string, 1)
	l.serve("203.0.113.5:443", func(c net.Conn) {
		b, _ := io.ReadAll(c)
		arrived <- string(b)
		fmt.Fprint(c, "seen")
	})
	for _, c := range []struct {
		what, words string
		ok          bool
	}{
		{"TLS for it", hello(t, "api.test"), true},
		{"TLS for it in capitals", hello(t, "API.test"), true},
		{"TLS for another", hello(t, "evil.test"), false},
		{"TLS for none", hello(t, ""), false},
		{"TLS that hides", string(hiddenHello(t)), false},
		{"invalid TLS", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 100), false},
		{"TLS cut short", hello(t, "api.test")[:60], false},
		{"HTTP for it", "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", true},
		{"HTTP for it with a port", "GET / HTTP/1.1\r\nHost: API.test.:443\r\n\r\n", true},
		{"HTTP for another", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", false},
		{"HTTP for two", "GET / HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n", false},
		{"HTTP for none", "GET / HTTP/1.1\r\n\r\n", false},
		{"HTTP for a URL", "GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", false},
		{"HTTP tunnel", "CONNECT evil.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n", false},
		{"HTTP without end", "GET / HTTP/1.1\r\nHost: api.test\r\n", false},
		{"HTTP too long", "GET / HTTP/1.1\r\nHost: api.test\r\nX: " + strings.Repeat("x", 70<<10), false},
		{"lines that are no HTTP", "GET key\r\n", true},
		{"a letter", "G", true},
		{"an unknown word", "PING", true},
		{"nothing", "", true},
		{"bytes", "\x00\x00\x00\x08\x04\xd2\x16\x2f", true},
	} {
		conn, err := l.connectName("api.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		response := exchangeText(t, conn, c.words)
		if ok := response == "seen"; ok != c.ok {
			t.Errorf("%s: went through: %t", c.what, ok)
		}
		if got := <-arrived; c.ok && got != c.words || !c.ok && got != "" {
			t.Errorf("%s: %q arrived", c.what, got)
		}
	}
}

func TestServerThatSpeaksFirstIsReachable(t *testing.T) {
	l := newWorld(t, allowHosts("mail.test"))
	l.name("mail.test", "203.0.113.5")
	l.serve("203.0.113.5:25", func(c net.Conn) {
		fmt.Fprint(c, "220 ready\r\n")
		b := make([]byte, 100)
		n, _ := c.Read(b)
		fmt.Fprintf(c, "250 %s", b[:n])
	})
	c, err := l.connectName("mail.test", 25)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil || string(b[:n]) != "220 ready\r\n" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	fmt.Fprint(c, "EHLO me\r\n")
	if n, _ = c.Read(b); string(b[:n]) != "250 EHLO me\r\n" {
		t.Errorf("%q", b[:n])
	}
}

func TestTightenedRulesEndConnections(t *testing.T) {
	l := newWorld(t, allowHosts("a.test", "b.test", "203.0.113.7"))
	l.name("a.test", "203.0.113.5")
	l.name("b.test", "203.0.113.6")
	for _, a := range []string{"203.0.113.5:80", "203.0.113.6:80", "203.0.113.7:80"} {
		l.serve(a, echoServer)
	}
	open := map[string]net.Conn{}
	for _, n := range []string{"a.test", "b.test"} {
		c, err := l.connectName(n, 80)
		if err != nil {
			t.Fatal(err)
		}
		open[n] = c
	}
	c, err := l.dial(netip.MustParseAddr("203.0.113.7"), 80)
	if err != nil {
		t.Fatal(err)
	}
	open["203.0.113.7"] = c
	alive := func(c net.Conn) bool {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 1)
		if _, err := c.Write([]byte("x")); err != nil {
			return false
		}
		_, err := c.Read(b)
		return err == nil
	}
	for n, c := range open {
		if !alive(c) {
			t.Fatal(n, "is not open to begin with")
		}
	}
	l.Update(*allowHosts("b.test"))
	for n, c := range open {
		if want := n == "b.test"; alive(c) != want {
			t.Errorf("%s is open: %t", n, !want)
		}
	}
	l.Update(brig.Egress{})
	if alive(open["b.test"]) {
		t.Error("no rules leave a connection open")
	}
	if _, ok := l.address("b.test"); ok {
		t.Error("no rules resolve a name")
	}
}

// If requests are inspected, the events also report that a name has resolved to
// a forbidden address.
func TestInspectReportsForbiddenAddress(t *testing.T) {
	rules := &brig.Egress{Rules: []brig.EgressRule{{Host: "rebind.test", Methods: []string{"GET"}}}}
	l := newWorld(t, rules, func(o *Options) { o.CA = &CA{} })
	l.name("rebind.test", "169.254.169.254")
	c, err := l.connectName("rebind.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: rebind.test\r\nConnection: close\r\n\r\n")
	if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 502 ") {
		t.Errorf("answered %q, %v", got, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.ContainsFunc(l.events, func(e Event) bool {
		return e.Kind == Connect && !e.Allowed && e.Host == "rebind.test" && e.Addr == "169.254.169.254" && e.Port == 80 && strings.Contains(e.Why, "private")
	}) {
		t.Errorf("told %+v", l.events)
	}
	if len(l.dialed) > 0 {
		t.Errorf("dialed %q", l.dialed)
	}
}

// Rules change while a connection is being established. The race detector must not find a race.
func TestRulesCanChangeWhileDialing(t *testing.T) {
	l := newWorld(t, allowHosts("a.test"))
	f, _ := l.openFlow("a.test", netip.Addr{}, 443)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			f.setAddr(netip.MustParseAddr("203.0.113.5"))
		}
	}()
	l.Update(brig.Egress{})
	<-done
	l.finish(f)
}

func TestOnlyAllowedNamesResolve(t *testing.T) {
	l := newWorld(t, allowHosts("api.test"))
	a, ok := l.address("api.test")
	if !ok || !brig.UplinkNetwork.Contains(a) {
		t.Fatalf("api.test is %v", a)
	}
	if b, _ := l.address("API.Test"); b != a {
		t.Errorf("in capitals it is %v", b)
	}
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeMX, dnsmessage.TypeTXT, 65, dnsmessage.TypeALL} {
		m, ok := l.lookup("api.test.", kind)
		if !ok || m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 0 {
			t.Errorf("type %v: %+v", kind, m)
		}
	}
	for _, name := range []string{"other.test.", ".", "1.0.18.198.in-addr.arpa.", "a\x00.api.test.", "api.test\x00.", strings.Repeat("a.", 120) + "test."} {
		if m, ok := l.lookup(name, dnsmessage.TypeA); !ok || m.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%q: %+v", name, m)
		}
	}
	if _, queries := l.outsideTraffic(); len(queries) > 0 {
		t.Errorf("%q were asked for outside", queries)
	}
	// The same over TCP.
	c, err := l.dial(brig.UplinkGateway, dnsPort)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("api.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, _ := q.Pack()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = c.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatal(err)
	}
	response := make([]byte, int(size[0])<<8|int(size[1]))
	if _, err := io.ReadFull(c, response); err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(response); err != nil || len(m.Answers) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

// A client may reuse a port as soon as the server has closed the previous
// connection first. A server that keeps the old connection in TIME-WAIT would
// drop the client's SYN for a minute.
func TestClientPortCanBeReused(t *testing.T) {
	l := newWorld(t, allowHosts("api.test"))
	l.name("api.test", "203.0.113.5")
	l.serve("203.0.113.5:80", func(c net.Conn) { _, _ = io.WriteString(c, "bye") })
	to, ok := l.address("api.test")
	if !ok {
		t.Fatal("the name does not resolve")
	}
	for i := range 3 {
		c, err := l.dialFrom(40_000, to, 80)
		// The port is in use until the server has received the client's FIN of the previous
		// connection. A SYN that arrives while that connection is being deleted is rejected with
		// RST.
		tooEarly := func() bool {
			return err != nil && (strings.Contains(err.Error(), "in use") || strings.Contains(err.Error(), "refused"))
		}
		for end := time.Now().Add(time.Minute); tooEarly() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			c, err = l.dialFrom(40_000, to, 80)
		}
		if err != nil {
			t.Fatalf("connection %d of a port: %v", i+1, err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if b, err := io.ReadAll(c); err != nil || string(b) != "bye" {
			t.Fatalf("connection %d of a port: %q, %v", i+1, b, err)
		}
		c.Close()
	}
}

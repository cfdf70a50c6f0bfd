package brig_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// rules parses rules such as "allow HOST@PORT", "deny CIDR" or "allow HOST METHOD
// /path".
func rules(t *testing.T, lines ...string) *brig.Egress {
	t.Helper()
	e := &brig.Egress{}
	for _, l := range lines {
		f := strings.Fields(l)
		r := brig.EgressRule{Deny: f[0] == "deny"}
		place, port, ok := strings.Cut(f[1], "@")
		if ok {
			for p := range strings.SplitSeq(port, ",") {
				n := 0
				for _, c := range p {
					n = n*10 + int(c-'0')
				}
				r.Ports = append(r.Ports, n)
			}
		}
		if _, err := brig.ParseNetwork(place); err == nil {
			r.CIDR = place
		} else {
			r.Host = place
		}
		for _, w := range f[2:] {
			if w[0] == '/' {
				r.Paths = append(r.Paths, w)
			} else {
				r.Methods = append(r.Methods, w)
			}
		}
		e.Rules = append(e.Rules, r)
	}
	if err := e.Check(); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEgressNamedHosts(t *testing.T) {
	e := rules(t,
		"deny secret.example.com",
		"allow *.example.com@443",
		"allow db.test@5432",
		"allow api.test GET /v1/*",
		"allow xn--bcher-kva.test",
		"deny late.test", "allow late.test",
	)
	for _, c := range []struct {
		host string
		port int
		want brig.Verdict
		rule int
	}{
		{"a.example.com", 443, brig.Allowed, 1},
		{"a.b.example.com", 443, brig.Allowed, 1},
		{"a.example.com", 80, brig.Denied, -1},
		{"example.com", 443, brig.Denied, -1},
		{"evilexample.com", 443, brig.Denied, -1},
		{".example.com", 443, brig.Denied, -1},
		{"a.example.com.evil.test", 443, brig.Denied, -1},
		{"secret.example.com", 443, brig.Denied, 0},
		{"db.test", 5432, brig.Allowed, 2},
		{"db.test", 5433, brig.Denied, -1},
		{"xdb.test", 5432, brig.Denied, -1},
		{"api.test", 443, brig.Inspect, 3},
		{"xn--bcher-kva.test", 1, brig.Allowed, 4},
		{"late.test", 1, brig.Denied, 5},
		{"", 443, brig.Denied, -1},
		{"192.0.2.1", 443, brig.Denied, -1},
	} {
		v, i := e.Named(c.host, c.port)
		if v != c.want || i != c.rule {
			t.Errorf("%s:%d is %v by rule %d, want %v by %d", c.host, c.port, v, i, c.want, c.rule)
		}
		if c.want == brig.Denied {
			all, _ := (&brig.Egress{Rules: []brig.EgressRule{{Host: "*"}}}).Named(c.host, c.port)
			attack.RecordCase("NET-15", fmt.Sprintf("%q:%d", c.host, c.port), v != brig.Denied)
			if all == brig.Allowed {
				attack.RecordMutant("NET-15", fmt.Sprintf("%q:%d", c.host, c.port), "the rules", true)
			}
		}
	}
	for host, want := range map[string]bool{
		"a.example.com": true, "example.com": false, "secret.example.com": false, "api.test": true,
		"late.test": false, "other.test": false, "": false,
	} {
		if e.Answers(host) != want {
			t.Errorf("%q is resolved: %t", host, !want)
		}
	}
	if nothing := (&brig.Egress{}); nothing.Answers("a.test") {
		t.Error("no rules resolve a name")
	}
}

func TestEgressCheckRequest(t *testing.T) {
	e := rules(t, "deny api.test DELETE", "deny api.test /Admin /secret/*", "allow api.test GET POST /v1/* /health", "allow api.test@8080")
	for _, c := range []struct {
		method, path string
		port         int
		want         brig.Verdict
	}{
		{"GET", "/v1/", 443, brig.Allowed}, {"POST", "/v1/things/1", 443, brig.Allowed}, {"GET", "/health", 443, brig.Allowed},
		{"GET", "/v1", 443, brig.Denied}, {"GET", "/healthz", 443, brig.Denied}, {"GET", "/v2/x", 443, brig.Denied},
		{"PUT", "/v1/x", 443, brig.Denied}, {"get", "/v1/x", 443, brig.Denied}, {"DELETE", "/v1/x", 443, brig.Denied},
		{"PUT", "/x", 8080, brig.Allowed}, {"DELETE", "/x", 8080, brig.Denied},
		// Some servers ignore case, so denied paths match in any case.
		{"PUT", "/Admin", 8080, brig.Denied}, {"PUT", "/aDMIN", 8080, brig.Denied}, {"PUT", "/SECRET/x", 8080, brig.Denied},
		{"PUT", "/Administrator", 8080, brig.Allowed}, {"GET", "/V1/x", 443, brig.Denied},
	} {
		if v, _ := e.CheckRequest("api.test", c.port, brig.Request{Method: c.method, Path: c.path}); v != c.want {
			t.Errorf("%s %s on %d is %v, want %v", c.method, c.path, c.port, v, c.want)
		}
	}
}

// Rules that deny paths ignore case. A long path must cost about as much as a short
// one, because it is converted to lower case once, not for each rule.
func TestLongPathIsLoweredOnce(t *testing.T) {
	var e brig.Egress
	for i := range 199 {
		rule := brig.EgressRule{Host: "api.test", Deny: true}
		for j := range 50 {
			rule.Paths = append(rule.Paths, fmt.Sprintf("/Admin/%d/%d*", i, j))
		}
		e.Rules = append(e.Rules, rule)
	}
	e.Rules = append(e.Rules, brig.EgressRule{Host: "api.test"})
	fastest := func(path string, want brig.Verdict) time.Duration {
		least := time.Hour
		for range 5 {
			begin := time.Now()
			if v, _ := e.CheckRequest("api.test", 443, brig.Request{Method: "GET", Path: path}); v != want {
				t.Errorf("%.20s is %v", path, v)
			}
			least = min(least, time.Since(begin))
		}
		return least
	}
	short, long := fastest("/admit", brig.Allowed), fastest("/admit/"+strings.Repeat("xY/", 3_000), brig.Allowed)
	if long > 20*short {
		t.Errorf("a long path takes %v, a short one %v", long, short)
	}
	fastest("/aDMIN/198/49/", brig.Denied)
	fastest("/admin/199/50", brig.Allowed)
	e.Rules[0].Paths = []string{"/\u00c4*", "/caf\u00c9"}
	fastest("/\u00e4/b", brig.Denied)
	fastest("/CAF\u00e9", brig.Denied)
	fastest("/caf\u00e9/", brig.Allowed)
}

func TestEgressAddresses(t *testing.T) {
	const anywhere, host = "0.0.0.0/0", "host" // the literal address, or through a name
	for _, c := range []struct {
		rules, how, addr string
		want             brig.Verdict
	}{
		{anywhere, "number", "8.8.8.8", brig.Allowed},
		{anywhere, "number", "10.0.0.1", brig.Denied},
		{anywhere, "number", "127.0.0.1", brig.Denied},
		{anywhere, "number", "169.254.169.254", brig.Denied},
		{anywhere, "number", "168.63.129.16", brig.Denied},
		{anywhere, "number", "100.100.100.200", brig.Denied},
		{anywhere, "number", "::ffff:8.8.8.8", brig.Allowed},
		{anywhere, "number", "::ffff:10.0.0.1", brig.Denied},
		{anywhere, "number", "2001:4860:4860::8888", brig.Denied},
		{"::/0", "number", "2001:4860:4860::8888", brig.Allowed},
		{"::/0", "number", "fd00:ec2::254", brig.Denied},
		{"::/0", "number", "64:ff9b::a00:1", brig.Denied},
		{"::/0", "number", "2002:a00:1::", brig.Denied},
		{"::/0", "number", "fe80::1", brig.Denied},
		{"::/0", "number", "::ffff:0:10.0.0.1", brig.Denied},
		{"::/0", "number", "4000::1", brig.Denied},
		{host, "name", "::ffff:0:169.254.169.254", brig.Denied},
		{host, "name", "fec0::1", brig.Denied},
		{host, "name", "8000::1", brig.Denied},
		{"10.1.0.0/16", "number", "10.1.2.3", brig.Allowed},
		{"10.1.0.0/16", "number", "10.2.2.3", brig.Denied},
		{"10.0.0.0/7", "number", "10.2.2.3", brig.Denied}, // wider than the special network, so it does not include it explicitly
		{"127.0.0.1", "number", "127.0.0.1", brig.Allowed},
		{host, "number", "8.8.8.8", brig.Denied},
		{host, "name", "8.8.8.8", brig.Allowed},
		{host, "name", "10.1.2.3", brig.Denied},
		{host, "name", "127.0.0.1", brig.Denied},
		{host, "name", "0.0.0.0", brig.Denied},
		{host, "name", "::", brig.Denied},
		{host, "name", "::1", brig.Denied},
		{host, "name", "::ffff:127.0.0.1", brig.Denied},
		{host, "name", "198.18.0.1", brig.Denied},
		{"10.1.0.0/16", "name", "10.1.2.3", brig.Allowed},
	} {
		e := &brig.Egress{Rules: []brig.EgressRule{{CIDR: c.rules}}}
		if c.rules == host {
			e = &brig.Egress{Rules: []brig.EgressRule{{Host: "a.test"}}}
		}
		judge := e.Numbered
		if c.how == "name" {
			judge = e.Resolved
		}
		if v, _ := judge(netip.MustParseAddr(c.addr), 443); v != c.want {
			t.Errorf("rules %s: %s by %s is %v, want %v", c.rules, c.addr, c.how, v, c.want)
		}
	}
	no := &brig.Egress{Rules: []brig.EgressRule{{Deny: true, CIDR: "8.8.8.8"}, {Host: "a.test"}}}
	if v, i := no.Resolved(netip.MustParseAddr("8.8.8.8"), 443); v != brig.Denied || i != 0 {
		t.Error("an address that is denied is reached by name")
	}
	if v, _ := no.Resolved(netip.Addr{}, 443); v != brig.Denied {
		t.Error("what is no address is reached")
	}
}

// TestEgressCheckRejectsAddressAsHost checks that an address in the host field is an error
// that refers to the cidr field.
func TestEgressCheckRejectsAddressAsHost(t *testing.T) {
	for _, host := range []string{"10.0.0.5", "10.0.0.0/8", "2001:db8::1", "[2001:db8::1]"} {
		err := brig.AsError((&brig.Egress{Rules: []brig.EgressRule{{Host: host}}}).Check())
		if err == nil || err.Field != "egress.rules[0].host" || !strings.Contains(err.Hint, `"cidr"`) {
			t.Errorf("a rule for %s: %+v", host, err)
		}
		err = brig.AsError((&brig.Secret{Name: "a", Hosts: []string{host}}).Check([]byte("long enough")))
		if err == nil || err.Field != "hosts[0]" || !strings.Contains(err.Hint, "by name") {
			t.Errorf("a secret for %s: %+v", host, err)
		}
	}
}

func TestEgressCheck(t *testing.T) {
	host := func(h string) brig.EgressRule { return brig.EgressRule{Host: h} }
	network := func(n string) brig.EgressRule { return brig.EgressRule{CIDR: n} }
	for _, r := range []brig.EgressRule{
		host("a.test"), host("*.a.test"), host("*"), host("localhost"), host("_dmarc.a.test"), host("xn--bcher-kva.test"),
		network("10.0.0.0/8"), network("::/0"), network("192.0.2.1"), network("2001:db8::1"),
		{Host: "a.test", Ports: []int{1, 65535}, Methods: []string{"GET"}, Paths: []string{"/", "/a/*", "/a/b*", "/*"}},
	} {
		if err := (&brig.Egress{Rules: []brig.EgressRule{r}}).Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []brig.EgressRule{
		{}, {Host: "a.test", CIDR: "10.0.0.0/8"}, {Host: "a.test", Ports: []int{0}}, {Host: "a.test", Ports: []int{65536}},
		{Host: "a.test", Methods: []string{"get"}}, {Host: "a.test", Methods: []string{""}}, {CIDR: "192.0.2.1", Methods: []string{"GET"}},
		{Host: "a.test", Paths: []string{"a"}}, {Host: "a.test", Paths: []string{"/a/../b"}}, {Host: "a.test", Paths: []string{"/a%2fb"}},
		{Host: "a.test", Paths: []string{"/a*b"}}, {Host: "a.test", Paths: []string{"/a?b"}}, {Host: "a.test", Paths: []string{"//a"}},
		host("A.test"), host("a.test."), host("a..test"), host(".a.test"), host("*a.test"), host("a.*.test"), host("*.*"), host("**"),
		host("a.test\x00.evil.test"), host("a.test\n"), host("a.test "), host("a.test:443"), host("http://a.test"), host("a@b.test"),
		host("a.test/b"), host("a%2etest"), host("ａ.test"), host("bücher.test"), host("127.0.0.1"), host("127.1"), host("0x7f.0x1"),
		host("2130706433"), host("0177.0.0.01"), host("[::1]"), host("::1"), host("*.0.0.1"), host("-a.test"), host("a-.test"),
		host(strings.Repeat("a", 64) + ".test"), host(strings.Repeat("a.", 127) + "test"),
		network("10.0.0.1/8"), network("10.0.0.0/33"), network("10.0.0.0/08"), network("10.0/8"), network("::ffff:10.0.0.0/104"),
		network("fe80::1%eth0"), network("a.test"), network(" 10.0.0.0/8"), network("10.0.0.0/-1"), network("0x0a000000/8"),
	} {
		err := (&brig.Egress{Rules: []brig.EgressRule{r}}).Check()
		if e := brig.AsError(err); e == nil || e.Kind != brig.InvalidArgument || !strings.HasPrefix(e.Field, "egress.rules[0]") || e.Hint == "" {
			t.Errorf("%+v: %v, want an error with field and hint", r, err)
		}
		attack.RecordCase("NET-14", fmt.Sprintf("%+q %+q %v %q %q", r.Host, r.CIDR, r.Ports, r.Methods, r.Paths), err == nil)
	}
	if err := (&brig.Egress{Bandwidth: -1}).Check(); brig.KindOf(err) != brig.InvalidArgument {
		t.Error("a negative bandwidth")
	}
	if err := (&brig.Egress{Rules: make([]brig.EgressRule, 1000)}).Check(); brig.KindOf(err) != brig.InvalidArgument {
		t.Error("a thousand rules")
	}
	// An empty list of rules denies all connections. The control is a rule that
	// allows all connections.
	for _, h := range []string{"a.test", "localhost", "metadata.google.internal"} {
		none, _ := (&brig.Egress{}).Named(h, 443)
		all, _ := (&brig.Egress{Rules: []brig.EgressRule{host("*")}}).Named(h, 443)
		if none != brig.Denied || all != brig.Allowed {
			t.Errorf("%s: %v without rules, %v with one for everything", h, none, all)
		}
		attack.RecordCase("NET-14", "no rules, "+h, none != brig.Denied)
		attack.RecordMutant("NET-14", h, "the default", all == brig.Allowed)
	}
}

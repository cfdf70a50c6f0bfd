package brig_test

import (
	"net/netip"
	"testing"

	"github.com/brig-run/brig"
)

func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		raw           string
		private, good bool
		url           string
	}{
		{"https://sandbox.example.com", false, true, "https://sandbox.example.com"},
		{" https://sandbox.example.com:8443/base ", false, true, "https://sandbox.example.com:8443/base"},
		{"sandbox.example.com", false, true, "https://sandbox.example.com"},
		{"http://localhost:9385", true, true, "http://localhost:9385"},
		{"localhost:9385", true, true, "http://localhost:9385"},
		{"http://sandbox-executor-manager:9385", true, true, "http://sandbox-executor-manager:9385"},
		{"http://10.1.2.3:9385", true, true, "http://10.1.2.3:9385"},
		{"https://93.184.215.14", false, true, "https://93.184.215.14"},
		{"http://localhost:9385", false, false, ""},
		{"http://93.184.215.14", true, false, ""}, // plain HTTP over the internet
		{"https://127.0.0.1", false, false, ""},   // private, which is not allowed
		{"https://[::ffff:10.0.0.1]", false, false, ""},
		{"https://169.254.169.254", true, false, ""}, // metadata, never allowed
		{"https://[fd00:ec2::254]", true, false, ""},
		{"https://100.100.100.200", true, false, ""},
		{"https://0.0.0.0", true, false, ""},
		{"https://224.0.0.1", true, false, ""},
		{"ftp://example.com", true, false, ""},
		{"unix:///var/run/x.sock", true, false, ""},
		{"https://user:pass@example.com", false, false, ""},
		{"https://example.com/?q=1", false, false, ""},
		{"https://example.com/#f", false, false, ""},
		{"https://", false, false, ""},
		{"", true, false, ""},
		{"not a url", true, false, ""},
	} {
		e, err := brig.ParseEndpoint("endpoint", c.raw, c.private)
		if (err == nil) != c.good {
			t.Errorf("ParseEndpoint(%q, private %v) = %v, want it to be good: %v", c.raw, c.private, err, c.good)
			continue
		}
		if err != nil {
			if apiErr := brig.AsError(err); apiErr.Field != "endpoint" || apiErr.Hint == "" {
				t.Errorf("%q is refused without its field or a hint: %+v", c.raw, apiErr)
			}
		} else if e.URL.String() != c.url {
			t.Errorf("%q is %s, want %s", c.raw, e.URL, c.url)
		}
	}
}

// TestEndpointJudge checks which resolved addresses an endpoint permits, because
// the address of a host name is known only after its resolution.
func TestEndpointJudge(t *testing.T) {
	public, err := brig.ParseEndpoint("endpoint", "https://example.com", false)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := brig.ParseEndpoint("endpoint", "http://example.com", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr                string
		byPublic, byPrivate bool
	}{
		{"93.184.215.14", true, false}, {"2606:2800:21f:cb07:6820:80da:af6b:8b2c", true, false},
		{"127.0.0.1", false, true}, {"::1", false, true}, {"10.9.8.7", false, true}, {"192.168.0.9", false, true},
		{"172.20.0.2", false, true}, {"100.64.1.1", false, true}, {"fd12::1", false, true}, {"::ffff:127.0.0.1", false, true},
		{"169.254.169.254", false, false}, {"fe80::1", false, false}, {"168.63.129.16", false, false}, {"100.100.100.200", false, false},
		{"::ffff:169.254.169.254", false, false}, {"64:ff9b::a9fe:a9fe", false, false}, {"0.0.0.0", false, false}, {"255.255.255.255", false, false},
	} {
		addr := netip.MustParseAddr(c.addr)
		if err := public.CheckAddr(addr); (err == nil) != c.byPublic {
			t.Errorf("%s for a public endpoint: %v", addr, err)
		}
		if err := plain.CheckAddr(addr); (err == nil) != c.byPrivate {
			t.Errorf("%s for a private one: %v", addr, err)
		}
	}
}

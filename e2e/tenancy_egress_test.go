package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// singleAddressResolver is a resolver that resolves every name to one public address.
type singleAddressResolver struct{}

func (singleAddressResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("203.0.113.5")}, nil
}

// TestEgressQuota verifies that the traffic of sandboxes counts toward their tenant's quota. The
// server blocks egress when the tenant's daily quota is exhausted, and allows it again when the
// quota is raised.
//
//suite:part egress
func TestEgressQuota(t *testing.T) {
	needRoot(t)
	const size = 256 << 10
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
	defer srv.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	e, ctx := engineWith(t, engine.Options{Egress: engine.EgressOptions{Resolver: singleAddressResolver{}, Dial: dial}})
	box, err := e.Create(ctx, brig.Spec{TTL: 10 * time.Minute, Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "ok.test"}}}})
	if err != nil {
		t.Fatal(err)
	}
	fetch := func() string {
		t.Helper()
		res, err := e.Exec(ctx, box.Spec.Name, brig.Command{Timeout: time.Minute, Argv: []string{"python3", "-c",
			"import urllib.request as u; print(len(u.urlopen('http://ok.test/', timeout=10).read()))"}}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(res.Stdout.Head))
	}
	used := func() int64 {
		t.Helper()
		lines, err := e.TenantUsage(ctx, brig.UsageQuery{}) // updates the counters first
		if err != nil || len(lines) != 1 {
			t.Fatal(lines, err)
		}
		return lines[0].Egress
	}
	want := fmt.Sprint(size)
	if got := fetch(); got != want {
		t.Fatalf("without a quota: %q", got)
	}
	if n := used(); n < size || n > 2*size {
		t.Errorf("%d bytes were counted of a little more than %d", n, size)
	}
	quota := func(bytes int64) {
		t.Helper()
		if _, err := e.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{EgressPerDay: bytes}}); err != nil {
			t.Fatal(err)
		}
		used()
	}
	quota(size / 2)
	if _, err := e.Create(ctx, brig.Spec{}); brig.KindOf(err) != brig.RateLimited || brig.AsError(err).Field != "quota.egress_bytes_per_day" {
		t.Errorf("Create when it is used up: %v", err)
	}
	before := used()
	_, err = e.Exec(ctx, box.Spec.Name, brig.Command{Argv: []string{"true"}}, brig.IO{})
	if brig.KindOf(err) != brig.RateLimited {
		t.Errorf("Exec when it is used up: %v", err)
	}
	if p, err := e.Processes(box.Spec.Name).List(ctx); err != nil || len(p) != 0 {
		t.Error(p, err)
	}
	if n := used(); n-before > 4096 {
		t.Errorf("%d bytes went out meanwhile", n-before)
	}
	quota(100 * size)
	if got := fetch(); got != want {
		t.Errorf("with a larger quota: %q", got)
	}
}

// TestEgressQuotaStopsRunningProgram verifies that a running program cannot send more data
// once its tenant's quota is exhausted.
//
//suite:part egress
func TestEgressQuotaStopsRunningProgram(t *testing.T) {
	needRoot(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 32<<10))
			time.Sleep(10 * time.Millisecond)
		}
	}))
	defer srv.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	e, ctx := engineWith(t, engine.Options{Egress: engine.EgressOptions{Resolver: singleAddressResolver{}, Dial: dial}})
	if err := e.Recover(ctx); err != nil { // starts the accounting
		t.Fatal(err)
	}
	if _, err := e.UpdateTenant(ctx, brig.Tenant{Name: "acme", Quota: brig.Quota{EgressPerDay: 256 << 10}}); err != nil {
		t.Fatal(err)
	}
	box, err := e.Create(ctx, brig.Spec{TTL: 10 * time.Minute, Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "ok.test"}}}})
	if err != nil {
		t.Fatal(err)
	}
	const endless = `
import urllib.request as u
r = u.urlopen('http://ok.test/', timeout=10)
try:
    while r.read(65536): pass
except Exception as e: print('cut:', type(e).__name__)
try: u.urlopen('http://ok.test/', timeout=5)
except Exception as e: print('and then:', type(e).__name__)
`
	res, err := e.Exec(ctx, box.Spec.Name, brig.Command{Timeout: time.Minute, Argv: []string{"python3", "-c", endless}}, brig.IO{})
	if err != nil || res.TimedOut {
		t.Fatalf("the download went on: %+v, %v", res, err)
	}
	if out := string(res.Stdout.Head); !strings.Contains(out, "and then:") {
		t.Errorf("it says %q", out)
	}
}

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
)

// fixedNames is a resolver with a fixed table of names.
type fixedNames map[string]netip.Addr

// LookupNetIP implements egress.Resolver.
func (f fixedNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if a, ok := f[strings.TrimSuffix(host, ".")]; ok {
		return []netip.Addr{a}, nil
	}
	return nil, errors.New("no such name")
}

// TestBrokeredSecretReachesOnlyBoundHost verifies that only the host to which a secret is bound receives the value
// for the placeholder, and that the value never enters the sandbox. A request after a change of
// the secret must use the new value. The audit log must record the host and the secret.
//
//suite:part egress
func TestBrokeredSecretReachesOnlyBoundHost(t *testing.T) {
	needRoot(t)
	e, ctx, box, placeholder, values := checkBrokeredSecret(t, "gVisor", engine.Options{}, brig.Spec{})
	first, second := values[0], values[1]
	// Neither value occurs in the guest's memory or files. The control: the search finds the
	// placeholder and a value in a program's environment.
	in := "control-" + rand.Text()
	if _, err := e.Processes(box.Spec.Name).Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "600"}, Env: map[string]string{"CONTROL": in}}}); err != nil {
		t.Fatal(err)
	}
	n := guestMemory(t, filepath.Join(dataDirOf(t, e), "sandboxes", string(box.ID)), in, placeholder, first, second)
	if n[0] == 0 || n[1] == 0 || n[2] > 0 || n[3] > 0 {
		t.Errorf("in the guest's memory the control is %d times, the placeholder %d, the values %d and %d", n[0], n[1], n[2], n[3])
	}
	attack.RecordCase("SEC-01", "the value that was", n[2] > 0)
	attack.RecordCase("SEC-01", "the value that is", n[3] > 0)
	attack.RecordMutant("SEC-01", "a value in a program's environment", "brokering", n[0] > 0)
	var records []string
	for deadline := time.Now().Add(promptTimeout); len(records) < 3 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		p, err := e.Audit(ctx, brig.AuditQuery{Sandbox: string(box.ID), Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		records = nil
		for _, l := range p.Lines {
			if l.Op == "egress.request" {
				records = append(records, strings.Join([]string{l.Detail["host"], l.Detail["method"], l.Detail["path"], l.Detail["rule"], l.Detail["verdict"], l.Detail["secrets"]}, " "))
			}
		}
	}
	want := []string{"api.brig-test.com GET /x 0 allowed token", "other.brig-test.com GET /x 1 allowed ", "api.brig-test.com GET /x 0 allowed token"}
	if !slices.Equal(records, want) {
		t.Errorf("the audit log tells %q", records)
	}
}

// checkBrokeredSecret verifies that a sandbox can use a brokered secret, and returns the
// placeholder and the secret's values.
func checkBrokeredSecret(t *testing.T, where string, o engine.Options, spec brig.Spec, configs ...brig.ProviderConfig) (_ *engine.Engine, _ context.Context, box *brig.Sandbox, placeholder string, values []string) {
	t.Helper()
	var mu sync.Mutex
	got := map[string][]string{} // received tokens, by host
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		got[r.Host] = append(got[r.Host], token)
		fmt.Fprintln(w, "you said", token) // the response must not contain the value either
	}))
	cert, key := certificate(t, "brig-test.com") // also valid for subdomains
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	public := netip.MustParseAddr("93.184.215.14") // no packets are sent to this address, because Dial connects to the test's server
	o.Egress = engine.EgressOptions{
		Resolver: fixedNames{"api.brig-test.com": public, "other.brig-test.com": public}, Roots: roots,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
		},
	}
	e, ctx := engineWith(t, o)
	for _, c := range configs {
		if _, err := e.ConfigureProvider(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	put := func(value string) string {
		t.Helper()
		if _, err := e.PutSecret(ctx, brig.SecretChange{Name: "token", Value: []byte(value), Hosts: []string{"api.brig-test.com"}}); err != nil {
			t.Fatal(err)
		}
		return value
	}
	first := put("first-" + rand.Text())
	spec.Egress = brig.Egress{Rules: []brig.EgressRule{{Host: "api.brig-test.com"}, {Host: "other.brig-test.com", Methods: []string{"GET"}}}}
	spec.Secrets = []brig.SecretUse{{Name: "token"}}
	box, err = e.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(host string) string {
		t.Helper()
		res, err := e.Exec(ctx, box.Spec.Name, brig.Command{Argv: []string{"python3", "-c", `
import os, sys, urllib.request as u
print(os.environ["TOKEN"], u.urlopen(u.Request("https://" + sys.argv[1] + "/x", headers={"Authorization": "Bearer " + os.environ["TOKEN"]})).read())`, host}}, brig.IO{})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%s: %+v, %v", host, res, err)
		}
		return string(res.Stdout.Head)
	}
	printed := ask("api.brig-test.com") + ask("other.brig-test.com")
	second := put("second-" + rand.Text())
	printed += ask("api.brig-test.com")
	placeholder, _, _ = strings.Cut(printed, " ")
	if strings.Contains(printed, first) || strings.Contains(printed, second) || !strings.HasPrefix(placeholder, "brig-secret-") {
		t.Errorf("the sandbox saw %s", printed)
	}
	mu.Lock()
	attack.RecordCase("SEC-02", where+": a secret's value in the sandbox", strings.Contains(printed, first) || strings.Contains(printed, second))
	attack.RecordCase("SEC-02", where+": its placeholder to an allowed host that it is not for", !slices.Equal(got["other.brig-test.com"], []string{placeholder}))
	attack.RecordMutant("SEC-02", where+": the host that it is for", "the binding", slices.Contains(got["api.brig-test.com"], first))
	if want := []string{first, second}; !slices.Equal(got["api.brig-test.com"], want) {
		t.Errorf("the host that may have it got %q, want %q", got["api.brig-test.com"], want)
	}
	if want := []string{placeholder}; !slices.Equal(got["other.brig-test.com"], want) {
		t.Errorf("the other host got %q, want %q", got["other.brig-test.com"], want)
	}
	mu.Unlock()
	return e, ctx, box, placeholder, []string{first, second}
}

package outbound_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/brig-run/brig/internal/outbound"
)

var errRefused = errors.New("refused")

// TestTransportChecksResolvedAddress verifies that the check receives the resolved address of a
// name, and that a refusal prevents the connection. Control: a check that accepts the address.
func TestTransportChecksResolvedAddress(t *testing.T) {
	served := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer srv.Close()
	port := netip.MustParseAddrPort(srv.Listener.Addr().String()).Port()
	named := fmt.Sprintf("http://localhost:%d", port)
	get := func(check outbound.CheckFunc, proxy func(*http.Request) (*url.URL, error), to string) error {
		t.Helper()
		tr := outbound.NewTransport(&http.Transport{Proxy: proxy}, net.Dialer{}, check)
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	refuse := func(host string, addr netip.Addr) error {
		if host != "localhost" || !addr.IsLoopback() {
			t.Errorf("check called for %s at %s, want localhost at a loopback address", host, addr)
		}
		return errRefused
	}
	err := get(refuse, nil, named)
	if _, refusal := errors.AsType[*outbound.Refusal](err); !refusal || !errors.Is(err, errRefused) || served != 0 {
		t.Errorf("a refused address: %v, served %d times", err, served)
	}
	accept := func(string, netip.Addr) error { return nil }
	if err := get(accept, nil, named); err != nil || served != 1 {
		t.Errorf("an accepted address: %v, served %d times", err, served)
	}
	// Through a proxy, an address in the URL is checked, and a name is not checked.
	proxy := func(*http.Request) (*url.URL, error) { return url.Parse(srv.URL) }
	literal := func(_ string, addr netip.Addr) error {
		if addr == netip.MustParseAddr("169.254.169.254") {
			return errRefused
		}
		return nil
	}
	if err := get(literal, proxy, "http://169.254.169.254/"); !errors.Is(err, errRefused) || served != 1 {
		t.Errorf("an address through a proxy: %v, served %d times", err, served)
	}
	if err := get(literal, proxy, "http://name.example/"); err != nil || served != 2 {
		t.Errorf("a name through a proxy: %v, served %d times", err, served)
	}
}

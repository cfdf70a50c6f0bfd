package agentrun

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// openAt opens a provider whose service is the given handler.
func openAt(t *testing.T, h http.HandlerFunc) *Provider {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := Config{AccountID: "1", Region: regions[0], ControlEndpoint: srv.URL, DataEndpoint: srv.URL, AllowPrivate: true, Timeout: 1}
	p, err := Open(brig.ProviderEnv{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestUnresponsiveServiceTimesOut verifies that a call ends even if the service accepts a
// request and never responds.
func TestUnresponsiveServiceTimesOut(t *testing.T) {
	released := make(chan struct{})
	p := openAt(t, func(http.ResponseWriter, *http.Request) { <-released })
	t.Cleanup(func() { close(released) })
	p.service.timeout = 50 * time.Millisecond
	p.templates["brig-python-default"] = true
	failed := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), "x", brig.Program{Language: brig.Python, Code: "1"}, brig.IO{})
		failed <- err
	}()
	select {
	case err := <-failed:
		if brig.KindOf(err) != brig.Unavailable || brig.AsError(err).Hint == "" {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it is still waited for")
	}
}

// TestArtifactCountIsLimited verifies that the provider fetches at most as many
// artifacts as the limit, regardless of the number that a program reports.
func TestArtifactCountIsLimited(t *testing.T) {
	var downloads atomic.Int32
	p := openAt(t, func(w http.ResponseWriter, _ *http.Request) {
		downloads.Add(1)
		http.Error(w, "there is no such file", http.StatusNotFound)
	})
	end, o := &ending{Dir: "/x"}, &brig.Outcome{}
	for i := range 20 * brig.MaxArtifacts {
		end.Artifacts = append(end.Artifacts, fmt.Sprintf("%d.png", i))
	}
	p.collect(t.Context(), "box", o, end)
	if n := downloads.Load(); n != brig.MaxArtifacts || len(o.Artifacts) != 0 || len(o.Skipped) != len(end.Artifacts) {
		t.Errorf("%d were asked for, %d skipped", n, len(o.Skipped))
	}
}

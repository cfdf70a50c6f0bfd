package e2b_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

// heldService is a service whose lists and logs wait until they are released.
type heldService struct {
	*stub
	held *transcript.Held
}

func (s *heldService) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	s.held.Wait()
	return s.stub.List(ctx, o)
}

func (s *heldService) Logs(ctx context.Context, name string, o brig.LogOptions) (io.ReadCloser, error) {
	s.held.Wait()
	return s.stub.Logs(ctx, name, o)
}

// TestLargeResponsesTakeTurns verifies that a key can receive at most four large responses at the
// same time, however many requests it sends.
func TestLargeResponsesTakeTurns(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/sandboxes", "", http.StatusOK},
		{http.MethodGet, "/v2/sandboxes", "", http.StatusOK},
		{http.MethodGet, "/snapshots", "", http.StatusOK},
		{http.MethodGet, "/sandboxes/sb1/logs", "", http.StatusOK},
		{http.MethodGet, "/v2/sandboxes/sb1/logs", "", http.StatusOK},
		{http.MethodDelete, "/templates/none", "", http.StatusNotFound},
		{http.MethodPost, "/sandboxes", `{"templateID":"none"}`, http.StatusNotFound},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			s := &heldService{held: transcript.NewHeldCalls()}
			_, d, plain := serve(t, func(o *e2b.Options) {
				s.stub, _ = o.Service.(*stub)
				o.Service = s
			})
			createSandbox(t, plain.URL, `{"templateID":"base"}`)
			srv := httptest.NewServer(httpapi.NewLimiter(httpapi.Limits{}).Handler(d))
			t.Cleanup(srv.Close)
			transcript.CheckTurns(t, s.held, func() error {
				req, err := http.NewRequestWithContext(t.Context(), c.method, srv.URL+c.path, strings.NewReader(c.body))
				if err != nil {
					return err
				}
				req.Header.Set("X-Api-Key", key)
				if c.body != "" {
					req.Header.Set("Content-Type", "application/json")
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != c.status {
					return fmt.Errorf("%d %s, want %d; %v", resp.StatusCode, body, c.status, err)
				}
				return nil
			})
		})
	}
}

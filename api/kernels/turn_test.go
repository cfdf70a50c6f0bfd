package kernels_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/kernels"
)

// heldLists is a service whose lists wait until they are released.
type heldLists struct {
	*scriptedService
	held *transcript.Held
}

func (s *heldLists) List(ctx context.Context, o brig.ListOptions) (*brig.Page, error) {
	s.held.Wait()
	return s.scriptedService.List(ctx, o)
}

// TestLargeResponsesTakeTurns verifies that a key can receive at most four lists of kernels at
// the same time, however many requests it sends.
func TestLargeResponsesTakeTurns(t *testing.T) {
	s := &heldLists{&scriptedService{}, transcript.NewHeldCalls()}
	d := kernels.New(kernels.Options{Service: s, Keys: s})
	srv := httptest.NewServer(httpapi.NewLimiter(httpapi.Limits{}).Handler(d))
	t.Cleanup(srv.Close)
	transcript.CheckTurns(t, s.held, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/api/kernels?token="+key, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
}

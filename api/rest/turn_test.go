package rest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/rest"
)

// heldLists is a service whose lists of executions wait until they are released.
type heldLists struct {
	*stub
	released, full chan struct{}

	mu           sync.Mutex // guards the fields below
	active, most int
	once         sync.Once
}

func (s *heldLists) ListExecs(ctx context.Context, _ string) ([]*brig.Execution, error) {
	if brig.ActorFrom(ctx).Role != brig.Viewer {
		return nil, nil
	}
	s.mu.Lock()
	s.active++
	if s.most = max(s.most, s.active); s.active == 4 {
		s.once.Do(func() { close(s.full) })
	}
	s.mu.Unlock()
	<-s.released
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	return nil, nil
}

// TestLargeAnswersTakeTurns checks that a key gets four large answers at once, whatever the
// number of its requests. Controls: all are answered, and another key does not wait.
func TestLargeAnswersTakeTurns(t *testing.T) {
	s := &heldLists{stub: &stub{}, released: make(chan struct{}), full: make(chan struct{})}
	api := rest.New(rest.Options{Service: s, Keys: transcript.RoleKeys{}})
	srv := httptest.NewServer(httpapi.NewLimiter(httpapi.Limits{}).Handler(api))
	defer srv.Close()
	list := func(role brig.Role) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/sandboxes/one/execs", nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+transcript.KeyOf(role))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("as %s: %d", role, resp.StatusCode)
		}
	}
	var viewers sync.WaitGroup
	for range 40 {
		viewers.Go(func() { list(brig.Viewer) })
	}
	<-s.full
	for range 20 {
		list(brig.Member)
	}
	close(s.released)
	viewers.Wait()
	if s.most != 4 {
		t.Errorf("%d lists at once, want 4", s.most)
	}
}

package rest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

	mu                sync.Mutex // guards the fields below
	active, maxActive int
	once              sync.Once
}

func (s *heldLists) ListExecs(ctx context.Context, _ string) ([]*brig.Execution, error) {
	if brig.ActorFrom(ctx).Role != brig.Viewer {
		return nil, nil
	}
	s.mu.Lock()
	s.active++
	if s.maxActive = max(s.maxActive, s.active); s.active == 4 {
		s.once.Do(func() { close(s.full) })
	}
	s.mu.Unlock()
	<-s.released
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	return nil, nil
}

// heldWorkspaces is a service that holds the calls that read all of a workspace.
type heldWorkspaces struct {
	*stub
	held *transcript.Held
}

func (s heldWorkspaces) Workspaces(ctx context.Context) ([]*brig.Workspace, error) {
	s.held.Wait()
	return s.stub.Workspaces(ctx)
}

func (s heldWorkspaces) WorkspaceVersions(ctx context.Context, name string) ([]*brig.WorkspaceVersion, error) {
	s.held.Wait()
	return s.stub.WorkspaceVersions(ctx, name)
}

func (s heldWorkspaces) RestoreWorkspace(ctx context.Context, name string, version int) (*brig.WorkspaceVersion, error) {
	s.held.Wait()
	return s.stub.RestoreWorkspace(ctx, name, version)
}

func (s heldWorkspaces) ReadWorkspaceFile(ctx context.Context, name string, version int, path string) (int64, io.ReadCloser, error) {
	s.held.Wait()
	return s.stub.ReadWorkspaceFile(ctx, name, version, path)
}

// TestLargeWorkspacesTakeTurns verifies that calls that read all versions or all names of a
// workspace take turns, too, although some of their responses are small.
func TestLargeWorkspacesTakeTurns(t *testing.T) {
	for _, call := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/workspaces", ""},
		{http.MethodGet, "/v1/workspaces/data/versions", ""},
		{http.MethodGet, "/v1/workspaces/data/versions/1/files/content?path=/workspace/a", ""},
		{http.MethodPost, "/v1/workspaces/data/restore", `{"version": 1}`},
	} {
		held := transcript.NewHeldCalls()
		api := rest.New(rest.Options{Service: heldWorkspaces{&stub{}, held}, Keys: transcript.RoleKeys{}})
		h := httpapi.NewLimiter(httpapi.Limits{}).Handler(api)
		transcript.CheckTurns(t, held, func() error {
			r := httptest.NewRequestWithContext(t.Context(), call.method, "http://localhost"+call.path, strings.NewReader(call.body))
			r.Header.Set("Authorization", "Bearer "+transcript.KeyOf(brig.Member))
			if call.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code >= 300 {
				return fmt.Errorf("%s: %d: %s", call.path, w.Code, w.Body)
			}
			return nil
		})
	}
}

// TestLargeResponsesTakeTurns verifies that a key can receive at most four large responses at the
// same time, however many requests it sends. Controls: all requests are answered, and another
// key does not wait.
func TestLargeResponsesTakeTurns(t *testing.T) {
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
	if s.maxActive != 4 {
		t.Errorf("%d lists at once, want 4", s.maxActive)
	}
}

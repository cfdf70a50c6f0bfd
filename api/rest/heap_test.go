package rest_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi/transcript"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/internal/testenv"
)

// The requests of eight viewers who send 60 MB each are rejected, and the server uses almost no
// memory for them. Control: for a member, whose body of the same size is read, the server uses
// more memory, so that the test would detect an increase.
func TestRejectedBodiesUseNoMemory(t *testing.T) {
	srv := httptest.NewServer(rest.New(rest.Options{Service: &stub{}, Keys: transcript.RoleKeys{}}))
	defer srv.Close()
	body := append([]byte(`{"code":["`), bytes.Repeat([]byte(`","`), 20_000_000)...)
	send := func(role brig.Role) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/run", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", "Bearer "+transcript.KeyOf(role))
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0 // the server did not wait for the rest
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	peak := func(n int, role brig.Role, want int) uint64 {
		return testenv.HeapGrowthWithGarbage(func() {
			var senders sync.WaitGroup
			for range n {
				senders.Go(func() {
					if status := send(role); status != want && status != 0 {
						t.Errorf("as %s: %d", role, status)
					}
				})
			}
			senders.Wait()
		})
	}
	viewers, member := peak(8, brig.Viewer, http.StatusForbidden), peak(1, brig.Member, http.StatusBadRequest)
	t.Logf("the heap grew by %d KiB for eight viewers, by %d KiB for a member", viewers>>10, member>>10)
	if viewers > 8<<20 {
		t.Errorf("the heap grew by %d MiB for eight viewers", viewers>>20)
	}
	if member < 48<<20 || member > 200<<20 {
		t.Errorf("the heap grew by %d MiB for a member", member>>20)
	}
}

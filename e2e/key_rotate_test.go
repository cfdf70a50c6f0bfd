package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestFolderKeyRotation verifies that the keys of a data folder cannot revoke themselves, and
// that a rotation invalidates the old key immediately and permanently.
//
//suite:part core
func TestFolderKeyRotation(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, "--pool", "-1")
	admin, ctx := s.client(), t.Context()
	keys, err := admin.Keys(ctx, "")
	if err != nil || len(keys) != 2 {
		t.Fatalf("%+v, %v", keys, err)
	}
	for _, k := range keys {
		err := admin.RevokeKey(ctx, k.ID)
		if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(brig.AsError(err).Hint, "brig key rotate") {
			t.Errorf("revoking the key %s: %v", k.Actor.Name, err)
		}
	}
	old := s.key
	status := func(key string) int {
		t.Helper()
		req, err := http.NewRequest("GET", s.url+"/v1/keys", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	brigCommand(t, dir, "key", "rotate", "admin")
	b, err := os.ReadFile(filepath.Join(dir, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.TrimSpace(string(b))
	eventually(t, "the old key is refused", func() bool { return status(old) == 401 })
	if got := status(fresh); got != 200 {
		t.Errorf("the new key: %d", got)
	}
	// A key that is not stored in a file can be revoked as usual, and brig commands use the new
	// admin key.
	out := brigCommand(t, dir, "--json", "key", "create", "other", "--role", "viewer")
	if !strings.Contains(out, "other") {
		t.Errorf("a key of the new one's: %s", out)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, dir, "--pool", "-1")
	if got := status(old); got != 401 {
		t.Errorf("the old key after another start: %d", got)
	}
	if got := status(fresh); got != 200 {
		t.Errorf("the new key after another start: %d", got)
	}
}

package main

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/mem"
)

// TestPartialHeadLineKeepsOtherHeads checks the effect of a partial line, which a full disk or a
// killed server may leave. Later and earlier heads remain readable.
func TestPartialHeadLineKeepsOtherHeads(t *testing.T) {
	ctx, store := t.Context(), mem.New()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	happen := func() {
		t.Helper()
		if err := store.Append(ctx, brig.Event{At: time.Now(), Op: "x", Tenant: "a", Phase: brig.Intent}); err != nil {
			t.Fatal(err)
		}
	}
	newest := func(file string) int64 {
		t.Helper()
		all, err := readHeads(file, pub)
		if err != nil || len(all["a"]) == 0 {
			t.Fatalf("%v, %v", all, err)
		}
		return all["a"][len(all["a"])-1].Seq
	}
	happen()
	seen := map[string]int64{}
	if err := writeHeads(ctx, filepath.Join(t.TempDir(), "none", "heads"), store, key, seen); err == nil || len(seen) > 0 {
		t.Errorf("not written, and seen: %v, %v", seen, err)
	}
	file := filepath.Join(t.TempDir(), "heads")
	if err := os.WriteFile(file, []byte(`{"tenant":"a","seq":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeHeads(ctx, file, store, key, seen); err != nil || newest(file) != 1 {
		t.Errorf("after half a line: %v, %d", err, newest(file))
	}
	// A file that has grown too large is replaced by a file that contains the newest head of each
	// tenant.
	happen()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(whole, bytes.Repeat([]byte("\n"), maxHeads)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeHeads(ctx, file, store, key, seen); err != nil || newest(file) != 2 {
		t.Errorf("anew: %v, %d", err, newest(file))
	}
	info, err := os.Stat(file)
	if err != nil || info.Size() > 1000 || info.Mode().Perm() != 0o600 {
		t.Errorf("%+v, %v", info, err)
	}
}

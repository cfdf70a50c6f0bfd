package engine_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/engine/capacity"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/provider/fake"
)

// packSoon makes an engine pack the saves of paused sandboxes after a short time.
func packSoon(o *engine.Options) { o.PackAfter = 50 * time.Millisecond }

// createPaused creates a sandbox with a file, and pauses it.
func (h *fixture) createPaused(t *testing.T, ctx context.Context, name string) *brig.Sandbox {
	t.Helper()
	h.createWithNoteFile(t, ctx, brig.Spec{Name: name})
	s, err := h.Pause(ctx, name, brig.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitPacked waits until the save of a paused sandbox is packed and recorded.
func (h *fixture) awaitPacked(t *testing.T, s *brig.Sandbox) *brig.Record {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		save, err := h.provider.GetSave(t.Context(), brig.SaveID(s.ID))
		if err != nil {
			t.Fatal(err)
		}
		rec, err := h.store.Get(t.Context(), s.Tenant, string(s.ID))
		if err != nil {
			t.Fatal(err)
		}
		if save.Packed && rec.Pause != nil && rec.Pause.Bytes == save.Bytes && rec.SaveKey != nil {
			return rec
		}
	}
	t.Fatalf("%s was not packed", s.Spec.Name)
	return nil
}

// recoveredFixture returns a fixture whose engine has recovered, which starts its
// background work.
func recoveredFixture(t *testing.T, change func(*engine.Options)) *fixture {
	t.Helper()
	h := newFixture(t, change)
	if err := h.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// The save of a paused sandbox is packed after a while. The packed save uses less space, also of
// the tenant's storage quota, and the record has an encrypted key. A call, a fork and the next
// server unpack the save. The record of a running sandbox has no key.
func TestPackedSaveUsesLessStorage(t *testing.T) {
	keys := newKeyring(t)
	withKeys := func(o *engine.Options) {
		packSoon(o)
		o.Keys = keys
	}
	h := recoveredFixture(t, withKeys)
	ctx := withRole(t, brig.Operator)
	box := h.createPaused(t, ctx, "one")
	before := box.Pause.Bytes
	rec := h.awaitPacked(t, box)
	if rec.Pause.Bytes >= before || rec.State != brig.Paused || !rec.Pause.At.Equal(box.Pause.At) {
		t.Errorf("packed, it is %+v, and was %+v", rec.Pause, box.Pause)
	}
	for end := time.Now().Add(time.Minute); h.StorageOf("acme") != rec.Pause.Bytes; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it takes %d bytes of the storage, want %d", h.StorageOf("acme"), rec.Pause.Bytes)
		}
	}
	copies, err := h.Fork(ctx, "one", brig.ForkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	wantNote(t, ctx, h, copies[0].Spec.Name)
	h.awaitPacked(t, box) // the fork had unpacked the save
	if err := h.Remove(ctx, copies[0].Spec.Name); err != nil {
		t.Fatal(err)
	}
	h.Close()
	next := h.nextServer(t, withKeys)
	wantNote(t, ctx, next, "one")
	now, err := h.store.Get(t.Context(), "acme", string(box.ID))
	if err != nil || now.State != brig.Running || now.SaveKey != nil {
		t.Errorf("after its use it is %s with the key %v, %v", now.State, now.SaveKey, err)
	}
	if h.provider.Saves() != 0 {
		t.Errorf("%d saves are left", h.provider.Saves())
	}
}

// A resume interrupts a pack instead of waiting for it. A later pack of the same sandbox
// succeeds.
func TestResumeInterruptsPack(t *testing.T) {
	var packs atomic.Int32
	packing := make(chan struct{})
	h := recoveredFixture(t, packSoon)
	h.provider.OnPack = func(ctx context.Context, _ brig.SaveID) error {
		if packs.Add(1) > 1 {
			return nil
		}
		close(packing)
		<-ctx.Done()
		return ctx.Err()
	}
	ctx := withRole(t, brig.Member)
	h.createPaused(t, ctx, "one")
	<-packing
	wantNote(t, ctx, h, "one") // the pack ends only if the resume cancels it
	if s := h.getRecord(t, "one"); s.State != brig.Running {
		t.Errorf("it is %s", s.State)
	}
	again, err := h.Pause(ctx, "one", brig.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.awaitPacked(t, again)
	wantNote(t, ctx, h, "one")
}

// Saves are not packed if there is no keyring or if packing is disabled.
func TestSavesAreNotPackedWhenDisabled(t *testing.T) {
	for name, change := range map[string]func(*engine.Options){
		"disabled":    func(o *engine.Options) { o.PackAfter = -1 },
		"without key": func(o *engine.Options) { o.PackAfter, o.Keys = 10*time.Millisecond, nil },
	} {
		h := recoveredFixture(t, change)
		ctx := withRole(t, brig.Member)
		box := h.createPaused(t, ctx, "one")
		time.Sleep(300 * time.Millisecond)
		if save, err := h.provider.GetSave(ctx, brig.SaveID(box.ID)); err != nil || save.Packed {
			t.Errorf("%s: the save is %+v, %v", name, save, err)
		}
		wantNote(t, ctx, h, "one")
	}
}

// A rotation of the master key encrypts the keys of saves again. A resume without the right
// master key fails, and the sandbox stays paused; with this key, it succeeds.
func TestKeyRotationKeepsPackedSaves(t *testing.T) {
	file := seal.File{Path: filepath.Join(t.TempDir(), "keys")}
	keys := func(s seal.Source) func(*engine.Options) {
		return func(o *engine.Options) {
			packSoon(o)
			var err error
			if o.Keys, err = seal.Open(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := recoveredFixture(t, keys(file))
	ctx := withRole(t, brig.Operator)
	box := h.createPaused(t, ctx, "one")
	before := h.awaitPacked(t, box)
	if _, err := h.RotateKey(ctx); err != nil {
		t.Fatal(err)
	}
	after := h.awaitPacked(t, box)
	if after.SaveKey.Key == before.SaveKey.Key || bytes.Equal(after.SaveKey.Sealed, before.SaveKey.Sealed) {
		t.Error("the key of the save was not encrypted anew")
	}
	h.Close()
	stranger := h.nextServer(t, keys(seal.FixedKeys{bytes.Repeat([]byte{1}, 32)}))
	if _, err := stranger.Resume(ctx, "one"); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "master key") {
		t.Errorf("resume without the master key: %v", err)
	}
	if s := h.getRecord(t, "one"); s.State != brig.Paused {
		t.Errorf("it is %s", s.State)
	}
	stranger.Close()
	wantNote(t, ctx, h.nextServer(t, keys(file)), "one")
}

// A save key that was copied from another record cannot be decrypted, and the sandbox stays
// paused.
func TestMovedSaveKeyCannotBeDecrypted(t *testing.T) {
	h := recoveredFixture(t, packSoon)
	ctx := withRole(t, brig.Member)
	one, two := h.createPaused(t, ctx, "one"), h.createPaused(t, ctx, "two")
	a, b := h.awaitPacked(t, one), h.awaitPacked(t, two)
	a.SaveKey = b.SaveKey
	if err := h.store.Put(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Resume(ctx, "one"); brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "cannot be decrypted") {
		t.Errorf("resume with the key of another sandbox: %v", err)
	}
	if s := h.getRecord(t, "one"); s.State != brig.Paused {
		t.Errorf("it is %s", s.State)
	}
	wantNote(t, ctx, h, "two")
}

// A sandbox whose pack fails stays paused and can be resumed.
func TestFailedPackKeepsSandboxResumable(t *testing.T) {
	h := recoveredFixture(t, packSoon)
	failed := make(chan struct{}, 1)
	h.provider.OnPack = func(context.Context, brig.SaveID) error {
		failed <- struct{}{}
		return errors.New("broken")
	}
	ctx := withRole(t, brig.Member)
	h.createPaused(t, ctx, "one")
	<-failed
	if s := h.getRecord(t, "one"); s.State != brig.Paused {
		t.Errorf("it is %s", s.State)
	}
	wantNote(t, ctx, h, "one")
}

// The unpacked files of a save are removed when no fork needs them any more, or when a resume
// fails. Concurrent forks and a resume do not remove each other's files, because a restore
// without them would fail.
func TestUnpackedFilesAreRemoved(t *testing.T) {
	h := recoveredFixture(t, func(o *engine.Options) { o.PackAfter = 500 * time.Millisecond })
	ctx := withRole(t, brig.Member)
	box := h.createPaused(t, ctx, "one")
	h.awaitPacked(t, box)
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2}); err != nil {
		t.Fatal(err)
	}
	if n := h.provider.Unpacked(); n != 0 {
		t.Errorf("%d saves are unpacked after a fork", n)
	}
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			if _, err := h.Fork(ctx, "one", brig.ForkSpec{Count: 2}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := h.provider.Unpacked(); n != 0 {
		t.Errorf("%d saves are unpacked after three forks at once", n)
	}
	calls.Go(func() {
		if _, err := h.Fork(ctx, "one", brig.ForkSpec{}); err != nil {
			t.Error(err)
		}
	})
	wantNote(t, ctx, h, "one") // resumes it
	calls.Wait()

	if _, err := h.Create(ctx, brig.Spec{Name: "two", Env: map[string]string{"BRIG_RESTORED": "exit 1"}}); err != nil {
		t.Fatal(err)
	}
	copies, err := h.Fork(ctx, "two", brig.ForkSpec{Name: "base", Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	h.awaitPacked(t, copies[0])
	if _, err := h.Resume(ctx, "base"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("resume with a script that fails: %v", err)
	}
	if n := h.provider.Unpacked(); n != 0 {
		t.Errorf("%d saves are unpacked after a resume that failed", n)
	}
}

// A fork of a packed save holds a creation slot only while it unpacks the save. Later, its copies
// use their own slots.
func TestForkUnpacksInSlot(t *testing.T) {
	p := &checkedProvider{check: func() {}}
	h := recoveredFixture(t, func(o *engine.Options) {
		packSoon(o)
		p.Provider = o.Provider.(*fake.Provider)
		o.Provider = p
		o.Capacity = capacity.Options{MaxCreating: 1, MaxWait: 50 * time.Millisecond}
	})
	ctx := withRole(t, brig.Member)
	h.awaitPacked(t, h.createPaused(t, ctx, "one"))
	var during error
	p.unpack = func() { _, during = h.Create(ctx, brig.Spec{}) }
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{}); err != nil {
		t.Fatal(err)
	}
	if brig.KindOf(during) != brig.RateLimited {
		t.Errorf("create during the unpack: %v", during)
	}
}

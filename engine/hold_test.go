package engine_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/store/mem"
)

// openUses maps the kinds of open use of a sandbox to functions that begin the use. Each
// returns a function to end the use.
var openUses = map[string]func(t *testing.T, ctx context.Context, h *fixture, name string) (closeUse func()){
	"upload": func(t *testing.T, ctx context.Context, h *fixture, name string) func() {
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := h.Files(name).Write(ctx, brig.Path{Name: "/workspace/up"}, brig.FileWrite{}, r)
			done <- err
		}()
		return func() {
			w.Close()
			<-done
		}
	},
	"download": func(t *testing.T, ctx context.Context, h *fixture, name string) func() {
		if _, err := h.Files(name).MakeDir(ctx, brig.Path{Name: "/workspace/d"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Files(name).Write(ctx, brig.Path{Name: "/workspace/d/f"}, brig.FileWrite{}, eofReader{}); err != nil {
			t.Fatal(err)
		}
		_, r, err := h.Files(name).Read(ctx, brig.Path{Name: "/workspace/d/f"}, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		return func() { r.Close() }
	},
	"process": func(t *testing.T, ctx context.Context, h *fixture, name string) func() {
		p, err := h.Processes(name).Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "1000000"}}})
		if err != nil {
			t.Fatal(err)
		}
		attached, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- h.Processes(name).Attach(attached, p.PID, 0, func(brig.ProcessEvent) error { return nil })
		}()
		return func() {
			cancel()
			<-done
			_ = h.Processes(name).Signal(ctx, p.PID, "SIGKILL") // it may have ended with the sandbox
		}
	},
	"log": func(t *testing.T, ctx context.Context, h *fixture, name string) func() {
		r, err := h.Logs(ctx, name, brig.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		return func() { r.Close() }
	},
	"session": func(t *testing.T, ctx context.Context, h *fixture, name string) func() {
		var s brig.SessionUses
		if _, err := h.Exec(brig.WithSessionUses(ctx, &s), name, brig.Command{Argv: []string{"echo", "hi"}}, brig.IO{}); err != nil {
			t.Fatal(err)
		}
		return s.Close
	},
	"hold": func(t *testing.T, ctx context.Context, h *fixture, name string) func() {
		_, release, err := h.Hold(ctx, brig.OpRunCode, name)
		if err != nil {
			t.Fatal(err)
		}
		return release
	},
}

// eofReader is a reader without data.
type eofReader struct{}

// Read implements io.Reader.
func (eofReader) Read([]byte) (int, error) { return 0, io.EOF }

// TestOpenCountsAsUse verifies that an open use keeps a sandbox running for many times its lease.
// The sandbox ends one lease after the use was closed. The controls are a sandbox without open
// use and one with a fixed lease, which both end in time.
func TestOpenCountsAsUse(t *testing.T) {
	for what, open := range openUses {
		t.Run(what, func(t *testing.T) {
			withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
				ctx := withRole(t, brig.Member)
				const ttl = 10 * time.Minute
				for name, fixed := range map[string]bool{"one": false, "idle": false, "fixed": true} {
					if _, err := h.Create(ctx, brig.Spec{Name: name, TTL: ttl, FixedLease: fixed}); err != nil {
						t.Fatal(err)
					}
				}
				closeOne, closeFixed := open(t, ctx, h, "one"), open(t, ctx, h, "fixed")
				for range 10 {
					advance(ttl * 7 / 10)
					if s := h.getSandbox(t, "one"); s.State != brig.Running || time.Until(s.Expires) < ttl/2 {
						t.Fatalf("while it is open it is %s until %v", s.State, s.Expires)
					}
				}
				for _, name := range []string{"idle", "fixed"} {
					if s := h.getSandbox(t, name); s.State != brig.Ended || s.Exit.Reason != brig.LeaseExpired || s.Ended.Sub(s.Created) > ttl+time.Minute {
						t.Errorf("%s is %s, %+v", name, s.State, s.Exit)
					}
				}
				closeFixed()
				closeOne()
				h.wantLease(t, "after it was closed", "one", ttl)
				advance(ttl + time.Second)
				if s := h.getSandbox(t, "one"); s.State != brig.Ended || s.Exit.Reason != brig.LeaseExpired {
					t.Errorf("afterwards it is %s, %+v", s.State, s.Exit)
				}
			})
		})
	}
}

// TestOpenEndsWithMaxLife verifies that a sandbox ends at its maximum lifetime even if it is in
// use.
func TestOpenEndsWithMaxLife(t *testing.T) {
	limitRange := brig.DefaultLimitRange()
	limitRange.MaxLife, limitRange.MaxTTL = 2*time.Hour, time.Hour
	for what, open := range openUses {
		t.Run(what, func(t *testing.T) {
			withFakeClock(t, engine.Options{LimitRange: limitRange}, func(t *testing.T, h *fixture, _ *hookedProvider) {
				ctx := withRole(t, brig.Member)
				created, err := h.Create(ctx, brig.Spec{Name: "one", TTL: 10 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				defer open(t, ctx, h, "one")()
				advance(time.Until(created.Created.Add(limitRange.MaxLife)) - time.Minute)
				if s := h.getSandbox(t, "one"); s.State != brig.Running {
					t.Fatalf("a minute before the end of its life it is %s", s.State)
				}
				advance(2 * time.Minute)
				if s := h.getSandbox(t, "one"); s.State != brig.Ended || s.Exit.Reason != brig.LeaseExpired {
					t.Errorf("after its life it is %s, %+v", s.State, s.Exit)
				}
			})
		})
	}
}

// TestOpenUseKeepsExtendedLease verifies that the renewals for an open use never shorten an
// extended lease, and continue for a shortened lease.
func TestOpenUseKeepsExtendedLease(t *testing.T) {
	withFakeClock(t, engine.Options{}, func(t *testing.T, h *fixture, _ *hookedProvider) {
		ctx := withRole(t, brig.Member)
		const ttl = 30 * time.Minute
		for _, name := range []string{"long", "short", "control"} {
			if _, err := h.Create(ctx, brig.Spec{Name: name, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		defer openUses["process"](t, ctx, h, "long")()
		defer openUses["process"](t, ctx, h, "short")()
		if _, err := h.Extend(ctx, "long", 4*time.Hour); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"short", "control"} {
			if _, err := h.Extend(ctx, name, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		advance(2 * time.Hour)
		h.wantLease(t, "after two hours", "long", 2*time.Hour)
		if s := h.getSandbox(t, "short"); s.State != brig.Running {
			t.Errorf("the open sandbox with the shorter lease is %s", s.State)
		}
		if s := h.getSandbox(t, "control"); s.State != brig.Ended {
			t.Errorf("control: %s", s.State)
		}
	})
}

// gettingStore is a store whose Get method calls the function got once after it
// has read a record. If fail is set, Get returns it as its error.
type gettingStore struct {
	brig.Store
	mu   *sync.Mutex
	got  *func()
	fail *error
}

func (s gettingStore) Get(ctx context.Context, tenant, name string) (*brig.Record, error) {
	rec, err := s.Store.Get(ctx, tenant, name)
	s.mu.Lock()
	got, fail := *s.got, *s.fail
	*s.got = nil
	s.mu.Unlock()
	if got != nil {
		got()
	}
	return rec, cmp.Or(fail, err)
}

// TestOpenSeesShorterLease verifies that the engine renews a lease in time even if a caller
// shortens it at the beginning of an open use and the store fails temporarily. The control is
// a sandbox without open use.
func TestOpenSeesShorterLease(t *testing.T) {
	for what, meanwhile := range map[string]func(t *testing.T, extend func(), s gettingStore) (open bool){
		"opened after": func(t *testing.T, extend func(), s gettingStore) bool {
			extend()
			return true
		},
		"opened during the change": func(t *testing.T, extend func(), s gettingStore) bool {
			*s.got = extend // called after the opening call has read the record
			return true
		},
		"the store fails during a renewal": func(t *testing.T, extend func(), s gettingStore) bool {
			time.AfterFunc(time.Second, extend)
			time.AfterFunc(15*time.Second, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				*s.fail = errors.New("the store is away")
			})
			time.AfterFunc(35*time.Second, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				*s.fail = nil
			})
			return true
		},
		"nothing is open": func(t *testing.T, extend func(), s gettingStore) bool {
			extend()
			return false
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := gettingStore{Store: mem.New(), mu: new(sync.Mutex), got: new(func()), fail: new(error)}
			withFakeClock(t, engine.Options{Store: s}, func(t *testing.T, h *fixture, _ *hookedProvider) {
				ctx := withRole(t, brig.Member)
				if _, err := h.Create(ctx, brig.Spec{Name: "one", TTL: 30 * time.Minute}); err != nil {
					t.Fatal(err)
				}
				extend := func() {
					if _, err := h.Extend(ctx, "one", time.Minute); err != nil {
						t.Error(err)
					}
				}
				want := brig.Ended
				if meanwhile(t, extend, s) {
					defer openUses["upload"](t, ctx, h, "one")()
					want = brig.Running
				}
				advance(2 * time.Hour)
				if got := h.getSandbox(t, "one"); got.State != want {
					t.Errorf("it is %s, want %s", got.State, want)
				}
			})
		})
	}
}

// TestOpenIsNotIdle verifies that a sandbox is not paused as idle while a transfer or an attached
// process is open, and is paused after it. A session or a hold does not prevent the pause,
// because the next call resumes the sandbox. An open log does not prevent it either.
func TestOpenIsNotIdle(t *testing.T) {
	for what, open := range openUses {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t, nil)
				ctx := withRole(t, brig.Member)
				h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, Pausable: true, PauseAfter: time.Minute})
				closeUse := open(t, ctx, h, "one")
				advance(5 * time.Minute)
				want := brig.Running
				if what == "session" || what == "hold" || what == "log" {
					want = brig.Paused
				}
				if s := h.getRecord(t, "one"); s.State != want {
					t.Errorf("while it is open it is %s, want %s", s.State, want)
				}
				closeUse()
				advance(2 * time.Minute)
				if s := h.getRecord(t, "one"); s.State != brig.Paused {
					t.Errorf("two minutes after it was closed it is %s", s.State)
				}
				if err := h.Remove(ctx, "one"); err != nil { // its goroutines have the fake clock
					t.Error(err)
				}
			})
		})
	}
}

// TestHoldReportsEnd verifies that Hold reports the end of a sandbox, whether by a call, at the
// end of the lease, or while the sandbox is paused. A pause is not reported as an end.
func TestHoldReportsEnd(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, ctx context.Context, h *fixture){
		"kill": func(t *testing.T, ctx context.Context, h *fixture) {
			if _, err := h.Kill(ctx, "one"); err != nil {
				t.Error(err)
			}
		},
		"remove": func(t *testing.T, ctx context.Context, h *fixture) {
			if err := h.Remove(ctx, "one"); err != nil {
				t.Error(err)
			}
		},
		"lease": func(*testing.T, context.Context, *fixture) { advance(2 * time.Hour) },
		"pause": func(t *testing.T, ctx context.Context, h *fixture) {
			if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
				t.Error(err)
			}
		},
		"remove paused": func(t *testing.T, ctx context.Context, h *fixture) {
			if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
				t.Error(err)
			}
			if err := h.Remove(ctx, "one"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t, nil)
				ctx := withRole(t, brig.Member)
				h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, Pausable: true, FixedLease: true})
				defer h.Remove(ctx, "one") // its goroutines have the fake clock
				ended, release, err := h.Hold(ctx, brig.OpRunCode, "one")
				if err != nil {
					t.Fatal(err)
				}
				defer release()
				end(t, ctx, h)
				synctest.Wait()
				select {
				case <-ended:
					if what == "pause" {
						t.Error("a pause is an end")
					}
				default:
					if what != "pause" {
						t.Error("the end is not reported")
					}
				}
			})
		})
	}
}

// TestHoldNeedsRights verifies that Hold rejects callers that may not call the operation on the
// sandbox.
func TestHoldNeedsRights(t *testing.T) {
	h := newFixture(t, nil)
	member := withRole(t, brig.Member)
	if _, err := h.Create(member, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	_, release, err := h.Hold(member, brig.OpRunCode, "one")
	if err != nil {
		t.Fatal(err)
	}
	release()
	for what, c := range map[string]struct {
		ctx  context.Context
		name string
		want brig.Kind
	}{
		"a viewer":       {withRole(t, brig.Viewer), "one", brig.PermissionDenied},
		"another tenant": {tenantContext(t, "rival"), "one", brig.NotFound},
		"no sandbox":     {member, "none", brig.NotFound},
	} {
		if _, _, err := h.Hold(c.ctx, brig.OpRunCode, c.name); brig.KindOf(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	var closed brig.SessionUses
	closed.Close()
	closed.Add("id", func() func() { panic(errors.New("a closed session holds a sandbox")) })
}

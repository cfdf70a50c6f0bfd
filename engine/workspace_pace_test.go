package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// slowly is a reader that waits before each part.
type slowly struct {
	ctx   context.Context // the context of the call that sends the file
	r     io.Reader
	pause time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	select {
	case <-time.After(s.pause):
	case <-s.ctx.Done():
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(p[:min(len(p), 1<<20)])
}

// TestSlowSandboxEndsCommit checks that a commit is aborted if its sandbox sends
// the files below a minimum rate, so that a slow sandbox cannot hold the commit's
// resources.
func TestSlowSandboxEndsCommit(t *testing.T) {
	content, skipped := make([]byte, 4<<20), make([]byte, 300<<20)
	for name, c := range map[string]struct {
		entries      int
		pause, parts time.Duration // before each entry, and before each MiB
		within       time.Duration // 0: the commit succeeds
	}{
		"nothing":           {1, 24 * time.Hour, 0, 6 * time.Minute},
		"an entry a minute": {1000, time.Minute, 0, 6 * time.Minute},
		"a MiB a minute":    {1000, 0, time.Minute, 6 * time.Minute},
		"600 a minute":      {50_000, 100 * time.Millisecond, 0, 61 * time.Minute},
		"20 minutes":        {60, 5 * time.Second, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &hookedProvider{Provider: &fake.Provider{}}
				p.pack = func(ctx context.Context, on func(brig.Node, io.Reader) error) error {
					for i := range c.entries {
						select {
						case <-time.After(c.pause):
						case <-ctx.Done():
							return context.Cause(ctx)
						}
						n := brig.Node{Path: fmt.Sprint(i), Type: brig.RegularFile, Mode: 0o644, Size: int64(len(content))}
						r := io.Reader(bytes.NewReader(content))
						if c.parts > 0 {
							r = &slowly{ctx, r, c.parts}
						} else {
							r, n.Size = bytes.NewReader(nil), 0
						}
						if err := on(n, r); err != nil {
							return err
						}
						if _, err := io.Copy(io.Discard, r); err != nil { // as providers do
							return err
						}
					}
					return nil
				}
				p.changed = func(ctx context.Context, on func(brig.Node, io.Reader) error) error {
					r := &slowly{ctx, bytes.NewReader(skipped), 20 * time.Millisecond} // larger than the limit for captured files
					if err := on(brig.Node{Path: "etc/f", Type: brig.RegularFile, Size: int64(len(skipped))}, r); err != nil {
						return err
					}
					_, err := io.Copy(io.Discard, r)
					return err
				}
				h := newFixture(t, func(o *engine.Options) { o.Provider = p })
				ctx := withRole(t, brig.Member)
				if _, err := h.CreateWorkspace(ctx, "data"); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Create(ctx, brig.Spec{Name: "box", TTL: 24 * time.Hour, Workspace: brig.WorkspaceUse{Name: "data", Capture: []string{"/etc"}}}); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				ctx, cancel := context.WithTimeout(ctx, 12*time.Hour)
				defer cancel()
				_, err := h.CommitWorkspace(ctx, "box")
				took := time.Since(begin)
				if c.within == 0 && err != nil || c.within > 0 && (brig.KindOf(err) != brig.Timeout || took > c.within) {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

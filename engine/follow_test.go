package engine_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// TestFollowedLogHasEachLineOnce verifies that a followed log contains each line once and in order,
// including lines with equal times. The log continues after a pause and ends with the sandbox.
// Without Follow, it ends immediately.
func TestFollowedLogHasEachLineOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		ctx := withRole(t, brig.Member)
		h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour, Pausable: true})
		echo := func(text string) {
			t.Helper()
			if _, err := h.Exec(ctx, "one", brig.Command{Argv: []string{"echo", text}}, brig.IO{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			echo("before")
		}
		open := func(o brig.LogOptions) *bufio.Reader {
			t.Helper()
			r, err := h.Logs(ctx, "one", o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			return bufio.NewReader(r)
		}
		next := func(r *bufio.Reader, want string) {
			t.Helper()
			if line, err := r.ReadString('\n'); err != nil || line != want+"\n" {
				t.Fatalf("%q, %v, want %q", line, err, want)
			}
		}
		all, last := open(brig.LogOptions{Follow: true}), open(brig.LogOptions{Follow: true, Tail: 1, Times: true})
		for range 3 {
			next(all, "before")
		}
		line, err := last.ReadString('\n')
		if logTime, text, ok := brig.CutLogTime(line); err != nil || !ok || text != "before\n" || time.Since(logTime) > time.Minute {
			t.Errorf("the last line is %q, %v", line, err)
		}
		for range 2 {
			echo("same")
			echo("same")
			next(all, "same")
			next(all, "same")
		}
		if _, err := h.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := h.getRecord(t, "one"); s.State != brig.Paused {
			t.Fatalf("a followed log resumes the sandbox: it is %s", s.State)
		}
		echo("after")
		next(all, "after")
		plain, err := io.ReadAll(open(brig.LogOptions{}))
		if err != nil || !strings.HasSuffix(string(plain), "after\n") {
			t.Errorf("not followed: %q, %v", plain, err)
		}
		if _, err := h.Kill(ctx, "one"); err != nil {
			t.Fatal(err)
		}
		for what, r := range map[string]*bufio.Reader{"open": all, "opened later": open(brig.LogOptions{Follow: true})} {
			if b, err := io.ReadAll(r); err != nil || (len(b) == 0) != (what == "open") {
				t.Errorf("%s, at the end: %q, %v", what, b, err)
			}
		}
	})
}

// TestFollowedLogsAreLimited verifies that followed logs have the same limit as watches, and
// that the log of a disconnected caller no longer counts.
func TestFollowedLogsAreLimited(t *testing.T) {
	h := newFixture(t, func(o *engine.Options) { o.Streams.Sandbox = 2 })
	ctx := withRole(t, brig.Member)
	h.createWithNoteFile(t, ctx, brig.Spec{Name: "one", TTL: time.Hour})
	follow := func(ctx context.Context) (io.ReadCloser, error) {
		return h.Logs(ctx, "one", brig.LogOptions{Follow: true})
	}
	callerCtx, disconnect := context.WithCancelCause(ctx)
	first, err := follow(callerCtx)
	if err != nil {
		t.Fatal(err)
	}
	second, err := follow(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := follow(ctx); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("one too many: %v", err)
	}
	if _, err := h.Logs(ctx, "one", brig.LogOptions{}); err != nil {
		t.Errorf("control: %v", err)
	}
	cause := errors.New("the caller has gone")
	disconnect(cause)
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	for _, r := range []io.Closer{first, second} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		r, err := follow(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
}

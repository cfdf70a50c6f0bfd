package workspace_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/workspace"
)

// unreadableObjects wraps Objects. Some keys cannot be read, or only in part.
type unreadableObjects struct {
	workspace.Objects
	failMidway bool
	of         func(key string) bool
}

func (o unreadableObjects) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := o.Objects.Get(ctx, key)
	if err != nil || !o.of(key) {
		return r, err
	}
	if !o.failMidway {
		r.Close()
		return nil, errors.New("503 Slow Down")
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, 1), &brokenBody{}), r}, nil
}

// brokenBody is a connection that breaks in the middle of a response.
type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestUnreachableStoreIsNotReportedAsDamaged checks that an unreachable store is not reported as damaged, and
// that no quota total is computed without the unreadable data.
func TestUnreachableStoreIsNotReportedAsDamaged(t *testing.T) {
	runOnBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"a": strings.Repeat("one", 1000)}); err != nil {
			t.Fatal(err)
		}
		use := resolveUse(t, s, "acme", "data", 0)
		want, err := s.Stored(ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range listKeys(t, a, "t/acme/blobs/") {
			for _, midway := range []bool{false, true} {
				out := true
				o := unreadableObjects{a, midway, func(k string) bool { return out && k == key }}
				if _, err := unpack(ctx, workspace.New(o, nil), "acme", use); brig.KindOf(err) != brig.Unavailable {
					t.Errorf("%s, midway %t: %v", key, midway, err)
				}
				later := workspace.New(o, nil)
				got, err := later.Stored(ctx, "acme")
				if err == nil && got != want {
					t.Errorf("%s, midway %t: %d bytes are counted of %d", key, midway, got, want)
				}
				out = false
				if got, err := later.Stored(ctx, "acme"); err != nil || got != want {
					t.Errorf("%s, midway %t, afterwards: %d bytes are counted of %d, %v", key, midway, got, want, err)
				}
			}
		}
	})
}

// lossyTransport is a transport to a bucket. It loses the response to each
// conditional write once.
type lossyTransport struct {
	lost atomic.Int32
	last atomic.Value // the path of the last lost response
}

func (d *lossyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Header.Get("If-None-Match") == "" || d.lost.Load() == 3 || d.last.Swap(r.URL.Path) == r.URL.Path {
		return answer, err
	}
	answer.Body.Close()
	d.lost.Add(1)
	return nil, io.ErrUnexpectedEOF
}

// TestS3RetryFindsOwnObject checks that a repeated request recognizes an object that its
// first attempt has created.
func TestS3RetryFindsOwnObject(t *testing.T) {
	g, d := startGateway(t), &lossyTransport{}
	g.o.Transport = d
	o, err := workspace.OpenS3(t.Context(), g.o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Errorf("it is there because it was just made: %v", err)
	}
	c, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"a": "one"})
	if err != nil || c.Changed != 1 || c.Version.Number != 1 {
		t.Errorf("a commit: %+v, %v", c, err)
	}
	d.lost.Store(1)
	if c, err := commit(ctx, s, "acme", "sb1", resolveUse(t, s, "acme", "data", 0), tree{"a": "two"}); err != nil || c.Version.Number != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if v, err := s.Restore(ctx, "acme", "ann", "data", 1, 0); err != nil || v.Number != 3 {
		t.Errorf("%+v, %v", v, err)
	}
	if all, err := s.Versions(ctx, "acme", "data"); err != nil || len(all) != 3 {
		t.Errorf("there are %d versions, %v", len(all), err)
	}
	if n := d.lost.Load(); n != 3 {
		t.Errorf("%d answers were lost", n)
	}
}

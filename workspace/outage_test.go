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

// outage is objects of which those that it names cannot be read: not at all,
// or in the middle.
type outage struct {
	workspace.Objects
	midway bool
	of     func(key string) bool
}

func (o outage) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := o.Objects.Get(ctx, key)
	if err != nil || !o.of(key) {
		return r, err
	}
	if !o.midway {
		r.Close()
		return nil, errors.New("503 Slow Down")
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, 1), &cut{}), r}, nil
}

// cut is a connection that ends before its answer does.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A store that does not answer has lost nothing: nobody is told to look for who
// changed it, and no sum of a quota is made without what could not be read.
func TestOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, a arena) {
		ctx, s := t.Context(), workspace.New(a, nil)
		if _, err := s.Create(ctx, "acme", "data"); err != nil {
			t.Fatal(err)
		}
		if _, err := commit(ctx, s, "acme", "sb1", at(t, s, "acme", "data", 0), tree{"a": strings.Repeat("one", 1000)}); err != nil {
			t.Fatal(err)
		}
		use := at(t, s, "acme", "data", 0)
		want, err := s.Stored(ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys(t, a, "t/acme/blobs/") {
			for _, midway := range []bool{false, true} {
				out := true
				o := outage{a, midway, func(k string) bool { return out && k == key }}
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

// deaf is a way to a bucket on which the answers to what is made only if it is
// not there get lost, once each.
type deaf struct {
	lost atomic.Int32
	last atomic.Value // the path
}

func (d *deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Header.Get("If-None-Match") == "" || d.lost.Load() == 3 || d.last.Swap(r.URL.Path) == r.URL.Path {
		return answer, err
	}
	answer.Body.Close()
	d.lost.Add(1)
	return nil, io.ErrUnexpectedEOF
}

// What a request finds that it has itself made, when it was sent again, is not
// somebody else's.
func TestSentAgain(t *testing.T) {
	g, d := startGateway(t), &deaf{}
	g.o.Transport = d
	o, err := workspace.OpenS3(t.Context(), g.o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, s := t.Context(), workspace.New(o, nil)
	if _, err := s.Create(ctx, "acme", "data"); err != nil {
		t.Errorf("it is there because it was just made: %v", err)
	}
	c, err := commit(ctx, s, "acme", "sb1", at(t, s, "acme", "data", 0), tree{"a": "one"})
	if err != nil || c.Changed != 1 || c.Version.Number != 1 {
		t.Errorf("a commit: %+v, %v", c, err)
	}
	if v, err := s.Restore(ctx, "acme", "ann", "data", 1); err != nil || v.Number != 2 {
		t.Errorf("%+v, %v", v, err)
	}
	if all, err := s.Versions(ctx, "acme", "data"); err != nil || len(all) != 2 {
		t.Errorf("there are %d versions, %v", len(all), err)
	}
	if n := d.lost.Load(); n != 3 {
		t.Errorf("%d answers were lost", n)
	}
}

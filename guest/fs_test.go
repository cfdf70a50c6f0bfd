package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/agent"
	"github.com/brig-run/brig/guest/wire"
)

// newAnsweringGuest returns a Guest whose agent responds to every call with the given bytes.
func newAnsweringGuest(response []byte) *Guest {
	return &Guest{Dial: func(context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		go func() {
			defer guest.Close()
			if _, err := wire.NewReader(guest).Read(); err == nil {
				_, _ = guest.Write(response)
			}
		}()
		return host, nil
	}}
}

// frames encodes a sequence of frames, given as alternating types and payloads.
func frames(all ...any) []byte {
	var b bytes.Buffer
	for i := 0; i < len(all); i += 2 {
		if err := wire.Write(&b, all[i].(wire.Type), []byte(all[i+1].(string))); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

const fine = `{"Path":"/a/b","Type":"file","Size":3,"Mode":420,"Owner":"user","Metadata":{"k":"v"}}`

// The host rejects invalid responses of an agent.
func TestFilesRejectsInvalidResponses(t *testing.T) {
	for what, b := range map[string][]byte{
		"nothing":            nil,
		"no entry":           frames(wire.TypeOK, ""),
		"no end":             frames(wire.TypeEntry, fine),
		"half a frame":       frames(wire.TypeEntry, fine)[:20],
		"two entries":        frames(wire.TypeEntry, fine, wire.TypeEntry, fine, wire.TypeOK, ""),
		"another frame":      frames(wire.TypeExit, "{}", wire.TypeOK, ""),
		"not JSON":           frames(wire.TypeEntry, "{", wire.TypeOK, ""),
		"a relative path":    frames(wire.TypeEntry, `{"Path":"a"}`, wire.TypeOK, ""),
		"a path that climbs": frames(wire.TypeEntry, `{"Path":"/a/../b"}`, wire.TypeOK, ""),
		"a huge entry":       frames(wire.TypeEntry, `{"Path":"/`+strings.Repeat("a", wire.MaxEntry)+`"}`, wire.TypeOK, ""),
	} {
		e, err := newAnsweringGuest(b).Files().Stat(t.Context(), brig.Path{Name: "/a"})
		if !errors.Is(err, ErrLost) {
			t.Errorf("%s: %+v, %v", what, e, err)
		}
		e, err = newAnsweringGuest(b).Files().Write(t.Context(), brig.Path{Name: "/a"}, brig.FileWrite{}, bytes.NewReader(make([]byte, 1<<20)))
		if !errors.Is(err, ErrLost) {
			t.Errorf("write, %s: %+v, %v", what, e, err)
		}
	}
	made := `{"Path":"/a","Type":"` + "host" + `","Size":-5,"Mode":4294967295,"Metadata":{"Up":"x","":"x","new\nline":"x","v":"\u0000","ok":"yes"}}`
	e, err := newAnsweringGuest(frames(wire.TypeEntry, made, wire.TypeOK, "")).Files().Stat(t.Context(), brig.Path{Name: "/a"})
	if err != nil || e.Type != brig.OtherFile || e.Size != 0 || e.Mode != 0o777 || len(e.Metadata) != 1 || e.Metadata["ok"] != "yes" {
		t.Errorf("%+v, %v", e, err)
	}
	// An agent that reports success before the whole file was sent causes an error.
	if e, err := newAnsweringGuest(frames(wire.TypeEntry, fine, wire.TypeOK, "")).Files().Write(t.Context(), brig.Path{Name: "/a"}, brig.FileWrite{}, bytes.NewReader(make([]byte, 9<<20))); !errors.Is(err, ErrLost) {
		t.Errorf("%+v, %v", e, err)
	}
}

// FuzzFiles checks that the host enforces its limits for any response of an
// agent.
func FuzzFiles(f *testing.F) {
	f.Add(frames(wire.TypeEntry, fine, wire.TypeOK, ""))
	f.Add(frames(wire.TypeEntry, fine, wire.TypeFileData, "abc", wire.TypeOK, ""))
	f.Add(frames(wire.TypeEntry, fine, wire.TypeFileData, "", wire.TypeFileData, "too much for it"))
	f.Add(frames(wire.TypeChange, "{}", wire.TypeChange, `{"Name":"x","Kinds":["write","create"],"Entry":`+fine+`}`))
	f.Add(frames(wire.TypeError, `{"Kind":"not_found","Field":"path","Message":"no"}`))
	f.Fuzz(func(t *testing.T, response []byte) {
		ctx, p := t.Context(), brig.Path{Name: "/a"}
		check := func(e *brig.Entry) {
			if e == nil || !path.IsAbs(e.Path) || e.Name != path.Base(e.Path) || e.Size < 0 || e.Mode > 0o777 || e.Type == "" || e.Type != brig.Symlink && e.Target != "" {
				t.Errorf("%+v", e)
			}
		}
		es, err := newAnsweringGuest(response).Files().List(ctx, p, 1)
		if err != nil && es != nil || len(es) > len(response) {
			t.Errorf("%d entries and %v", len(es), err)
		}
		for _, e := range es {
			check(e)
		}
		const maxLen = 5
		if e, r, err := newAnsweringGuest(response).Files().Read(ctx, p, 0, maxLen); err == nil {
			check(e)
			b, err := io.ReadAll(r)
			if len(b) > maxLen || err == nil && !bytes.Contains(response, []byte{byte(wire.TypeOK), 0, 0}) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			r.Close()
		}
		on := false
		err = newAnsweringGuest(response).Files().Watch(ctx, p, true, func(c brig.FileChange) error {
			if on != (len(c.Kinds) > 0) {
				t.Errorf("%+v, and the watch is on: %t", c, on)
			}
			if on = true; c.Entry != nil {
				check(c.Entry)
			}
			return nil
		})
		if err == nil {
			t.Error("a watch ended without a reason")
		}
	})
}

// This test runs the agent's code under the race detector, which is not
// possible inside a sandbox.
func TestAgentServesFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an agent gives files to another user, which takes root")
	}
	g := &Guest{Dial: func(context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		go (&agent.Agent{}).Serve(guest)
		return host, nil
	}}
	dir, fs, ctx := t.TempDir(), g.Files(), t.Context()
	pathOf := func(name string) brig.Path { return brig.Path{Name: filepath.Join(dir, name)} }
	ctx, cancel := context.WithCancel(ctx)
	seen, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		ended <- fs.Watch(ctx, pathOf(""), true, func(c brig.FileChange) error { seen <- c.Name; return nil })
	}()
	<-seen
	data := bytes.Repeat([]byte("data"), 1<<20)
	if e, err := fs.Write(ctx, pathOf("a/b/c"), brig.FileWrite{}, bytes.NewReader(data)); err != nil || e.Size != int64(len(data)) {
		t.Fatalf("%+v, %v", e, err)
	}
	for want := 3; want > 0; {
		if name := <-seen; name == "a" || name == "a/b" || name == "a/b/c" {
			want--
		}
	}
	_, r, err := fs.Read(ctx, pathOf("a/b/c"), 4, 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, data[4:4+4<<10]) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	r.Close()
	if e, err := fs.Move(ctx, pathOf("a/b"), pathOf("x/y")); err != nil || e.Type != brig.Directory {
		t.Errorf("%+v, %v", e, err)
	}
	if es, err := fs.List(ctx, pathOf(""), 9); err != nil || len(es) != 4 {
		t.Errorf("%d entries, %v", len(es), err)
	}
	if err := errors.Join(fs.Remove(ctx, pathOf("x")), fs.Remove(ctx, pathOf("none/at/all"))); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
}

package envd

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/e2b/envd/filesystempb"
)

// Every error kind maps to an error code in both protocols.
func TestErrorKindMapping(t *testing.T) {
	for _, k := range brig.Kinds {
		e := brig.Errorf(k, "x")
		internal := k == brig.Internal || k == brig.CreationFailed
		if (code(e).String() == "internal") != internal || (status(e) == http.StatusInternalServerError) != internal {
			t.Errorf("%s is %s and %d", k, code(e), status(e))
		}
	}
}

func TestTimeouts(t *testing.T) {
	for s, want := range map[string]time.Duration{"1500": 1500 * time.Millisecond, "0": 0, "9999999999": 9999999999 * time.Millisecond} {
		if d, ok := timeout(s); !ok || d != want {
			t.Errorf("%q is %v, %t", s, d, ok)
		}
	}
	for _, s := range []string{"", "-1", "x", "1.5", "10000000000"} {
		if _, ok := timeout(s); ok {
			t.Errorf("%q is a timeout", s)
		}
	}
	for s, want := range map[string]time.Duration{"": 90 * time.Second, "50": 50 * time.Second, "0": 90 * time.Second, "x": 90 * time.Second} {
		if got := keepalive(s); got != want {
			t.Errorf("%q is %v", s, got)
		}
	}
}

// A watcher that no client polls is kept, because its client would not learn that it was
// removed. A watcher whose watch has ended is removed if no client polls it for some time.
func TestUnpolledWatcherIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, stopped := newWatchers(), 0
		id, w, err := ws.add("acme", "box", "token", func() { stopped++ })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if _, err := ws.drain("box", "token", id); err != nil || stopped > 0 {
			t.Errorf("after a day: %v", err)
		}
		ws.end(w, "box", id, errors.New("the directory was removed"))
		time.Sleep(endedRetention - time.Second)
		if _, err := ws.drain("box", "token", id); err == nil || !strings.Contains(err.Error(), "removed") {
			t.Errorf("after the end: %v", err)
		}
		time.Sleep(endedRetention + time.Second)
		synctest.Wait()
		if len(ws.all) != 0 || stopped != 1 {
			t.Error("it is still there")
		}
	})
}

// The total number of buffered events of a tenant's watchers is limited.
func TestTenantEventLimit(t *testing.T) {
	ws := newWatchers()
	evs := []*filesystempb.FilesystemEvent{{Name: strings.Repeat("x", 1<<20)}}
	fill := func(tenant, box string) (failed int) {
		for range maxWatchers {
			_, w, err := ws.add(tenant, box, "token", func() {})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if ws.buffer(w, evs) != nil {
					failed++
					break
				}
			}
		}
		return failed
	}
	if n := fill("acme", "one"); n == 0 || ws.held["acme"] > maxTenantBytes {
		t.Errorf("%d watchers ended, and %d bytes are held", n, ws.held["acme"])
	}
	_, w, err := ws.add("beta", "two", "token", func() {})
	if err != nil || ws.buffer(w, evs) != nil || ws.held["beta"] == 0 {
		t.Error("another tenant has no room")
	}
	for box, all := range ws.all {
		for id := range all {
			if !ws.remove(box, id) {
				t.Error("a watcher no longer exists")
			}
		}
	}
	if err := ws.buffer(w, evs); err == nil || len(ws.held) > 0 {
		t.Errorf("in the end: %v, %v", ws.held, err)
	}
}

func FuzzDisposition(f *testing.F) {
	f.Add(`form-data; name="file"; filename="/a/b c.txt"`)
	f.Add(`form-data; name=file; filename*=UTF-8''%e2%82%ac`)
	f.Fuzz(func(t *testing.T, header string) {
		_, file, err := disposition(header)
		if err == nil && (len(file) > longest || strings.ContainsRune(file, 0)) {
			t.Errorf("%q", file)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add("X-Metadata-Team", "a b")
	f.Add("x-metadata-", "\x7f")
	f.Fuzz(func(t *testing.T, name, value string) {
		got, err := metadata(http.Header{name: {value}})
		if err != nil && got != nil {
			t.Error("both")
		}
		for k, v := range got {
			if k == "" || k != strings.ToLower(k) || len(k)+len(v) > maxMetadata || strings.ContainsAny(k+v, "\r\n\x00") {
				t.Errorf("%q: %q", k, v)
			}
		}
	})
}

func FuzzWho(f *testing.F) {
	f.Add("Basic dXNlcjo=", "~/x")
	f.Add("Basic cm9vdDo=", "../..")
	f.Add("Bearer x", "~eve")
	f.Fuzz(func(t *testing.T, header, name string) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["Authorization"] = []string{header}
		c := callOf(withCall(r, Sandbox{}, nil, nil).Context())
		p, err := c.path(t.Context(), name)
		if err == nil && (!path.IsAbs(p.Name) || path.Clean(p.Name) != p.Name || p.User != "user" && p.User != "root") {
			t.Errorf("%+v", p)
		}
	})
}

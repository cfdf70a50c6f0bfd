// Package transcript replays requests to an API and compares the responses byte
// for byte with recorded ones.
//
// A transcript is a txtar archive of requests ("GET /path", headers, body) in
// files NAME.req, each followed by its response in NAME.resp. The flag -update
// records the responses again.
package transcript

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Options configure a replay.
type Options struct {
	// Files is a pattern of the transcripts. Default: testdata/*.txtar.
	Files string
	// Serve starts an API for one transcript and returns its URL.
	Serve func(t *testing.T) string
	// Do sends a request and returns the response and its body.
	Do func(t *testing.T, req *http.Request) (*http.Response, string)
	// Headers are the names of the response headers to record.
	Headers []string
	// Normalize removes the parts of a response that differ between runs.
	// Default: none.
	Normalize func(string) string
}

// isUpdating reports whether the test has the flag -update.
func isUpdating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// Run replays every transcript.
func Run(t *testing.T, o Options) {
	names, err := filepath.Glob(cmp.Or(o.Files, "testdata/*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { replayAll(t, name, o) })
	}
}

func replayAll(t *testing.T, name string, o Options) {
	url := o.Serve(t)
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		id, ok := strings.CutSuffix(f.Name, ".req")
		if !ok {
			continue
		}
		got := replay(t, url, string(f.Data), o)
		out.Files = append(out.Files, f, txtar.File{Name: id + ".resp", Data: []byte(got)})
		if isUpdating() {
			continue
		}
		i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == id+".resp" })
		if i < 0 {
			t.Errorf("%s has no answer; go test -update", id)
		} else if want := string(a.Files[i].Data); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", id, got, want)
		}
	}
	if isUpdating() {
		if err := os.WriteFile(name, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// replay sends a request as written and returns the response in the format of a
// transcript. A header without a value is not sent.
func replay(t *testing.T, base, text string, o Options) string {
	t.Helper()
	head, body, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\n\n")
	first, rest, _ := strings.Cut(head, "\n")
	method, target, _ := strings.Cut(first, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, base+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(rest) {
		k, v, _ := strings.Cut(l, ":")
		v = strings.TrimSpace(v)
		switch {
		case k == "Host":
			req.Host = v
		case v == "":
			req.Header[http.CanonicalHeaderKey(k)] = nil
		default:
			req.Header.Set(k, v)
		}
	}
	resp, data := o.Do(t, req) //nolint:bodyclose // Do has read and closed it
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, h := range o.Headers {
		if v := resp.Header.Get(h); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", h, v)
		}
	}
	if o.Normalize != nil {
		data = o.Normalize(data)
	}
	fmt.Fprintf(&b, "\n%s", data)
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

// Fetch sends a request and reads the whole response. It does not follow
// redirects.
func Fetch(t testing.TB, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

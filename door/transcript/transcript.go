// Package transcript replays requests to a door and compares the answers byte
// for byte with those that were written down.
//
// A transcript is a txtar archive of requests ("GET /path", headers, body) in
// files NAME.req, each followed by its answer in NAME.resp. With -update the
// answers are written down anew.
package transcript

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// Options say how a door is spoken with.
type Options struct {
	// Files are the transcripts. Default testdata/*.txtar.
	Files string
	// Serve starts a door for one transcript, and returns its URL.
	Serve func(t *testing.T) string
	// Do makes a request.
	Do func(t *testing.T, req *http.Request) (*http.Response, string)
	// Headers are those of answers that are written down.
	Headers []string
	// Steady takes out of an answer what no two runs have in common. Default
	// nothing.
	Steady func(string) string
}

// updating is a flag of the tests that replay.
func updating() bool {
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
		if updating() {
			continue
		}
		i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == id+".resp" })
		if i < 0 {
			t.Errorf("%s has no answer; go test -update", id)
		} else if want := string(a.Files[i].Data); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", id, got, want)
		}
	}
	if updating() {
		if err := os.WriteFile(name, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// replay makes a request as written and writes down the answer. A header
// without a value is not sent.
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
	if o.Steady != nil {
		data = o.Steady(data)
	}
	fmt.Fprintf(&b, "\n%s", data)
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

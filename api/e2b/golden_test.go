package e2b_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// stamps are moments that no two runs have in common.
var stamps = regexp.MustCompile(`"timestamp":"20[0-9]{2}-[^"]*\+00:00"`)

// TestTranscripts replays requests and compares the answers byte for byte. A
// transcript is a txtar archive of requests ("GET /path", headers, body) in
// files NAME.req, each followed by its answer in NAME.resp.
func TestTranscripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			_, _, srv := serve(t)
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
				got := replay(t, srv.URL, string(f.Data))
				out.Files = append(out.Files, f, txtar.File{Name: id + ".resp", Data: []byte(got)})
				if *update {
					continue
				}
				i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == id+".resp" })
				if i < 0 {
					t.Errorf("%s has no answer; go test -update", id)
				} else if want := string(a.Files[i].Data); got != want {
					t.Errorf("%s: got\n%s\nwant\n%s", id, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// replay makes a request as written and writes down the answer.
func replay(t *testing.T, base, text string) string {
	t.Helper()
	head, body, _ := strings.Cut(strings.TrimSuffix(text, "\n"), "\n\n")
	first, rest, _ := strings.Cut(head, "\n")
	method, target, _ := strings.Cut(first, " ")
	var headers []string
	for l := range strings.Lines(rest) {
		k, v, _ := strings.Cut(l, ":")
		headers = append(headers, k, strings.TrimSpace(v))
	}
	resp, data := ask(t, method, base+target, body, headers...)
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, h := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Allow", "Content-Type", "Retry-After", "X-Next-Token", "X-Total-Running"} {
		if v := resp.Header.Get(h); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", h, v)
		}
	}
	fmt.Fprintf(&b, "\n%s", stamps.ReplaceAllString(data, `"timestamp":"NOW"`))
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

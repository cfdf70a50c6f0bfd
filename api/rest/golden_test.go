package rest_test

import (
	"bufio"
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

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

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
			_, srv := serve(t)
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
	head, body, _ := strings.Cut(text, "\n\n")
	sc := bufio.NewScanner(strings.NewReader(head))
	sc.Scan()
	method, target, _ := strings.Cut(sc.Text(), " ")
	body = strings.TrimSuffix(body, "\n")
	req, err := http.NewRequestWithContext(t.Context(), method, base+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	for sc.Scan() {
		k, v, _ := strings.Cut(sc.Text(), ":")
		v = strings.TrimSpace(v)
		switch req.Header.Del(k); {
		case k == "Host":
			req.Host = v
		case v != "":
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s: headers %v", method, target, resp.Header)
	}
	var b strings.Builder
	fmt.Fprintln(&b, resp.StatusCode)
	for _, h := range []string{"Allow", "Content-Type", "Location", "Retry-After", "Www-Authenticate"} {
		if v := resp.Header.Get(h); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", h, v)
		}
	}
	fmt.Fprintf(&b, "\n%s", data)
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

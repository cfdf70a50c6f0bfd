package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink     = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	inlineScript = regexp.MustCompile(`<script>|\son[a-z]+="|="javascript:`)
)

// TestDocumentationNeedsNoKey verifies that every page and file of the embedded documentation is available to a
// browser without a key, and that the console's content security policy allows the content.
//
//suite:part console
func TestDocumentationNeedsNoKey(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	brig := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), bin(t, "brig"), append(args, "--data-dir", dir)...)
		cmd.Env = append(os.Environ(), "BRIG_URL=", "BRIG_API_KEY=")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("brig %v: %v", args, err)
		}
		return string(out)
	}
	if out := brig("docs"); out != "https://github.com/brig-run/brig/tree/main/docs\n" {
		t.Errorf("without a server: %q", out)
	}
	s := startServer(t, dir)
	if out := brig("docs"); out != s.url+"/docs/\n" {
		t.Errorf("the server at %s has the documentation at %q", s.url, out)
	}
	get := func(path string) (*http.Response, string) {
		resp, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return resp, string(b)
	}
	console, _ := get("/console/")
	start, text := get("/docs/")
	if start.StatusCode != http.StatusOK || !strings.Contains(text, "Brig") {
		t.Fatalf("the documentation is not in this build: run make docs-site build: %d %s", start.StatusCode, text)
	}
	for _, name := range []string{"Content-Security-Policy", "Referrer-Policy", "X-Frame-Options", "X-Content-Type-Options"} {
		if got, want := start.Header.Get(name), console.Header.Get(name); got != want || want == "" {
			t.Errorf("%s: %q, and %q for the console", name, got, want)
		}
	}
	seen, pages := map[string]bool{"/docs/": true}, 0
	for todo := []string{"/docs/"}; len(todo) > 0; todo = todo[1:] {
		resp, text := get(todo[0])
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", todo[0], resp.StatusCode)
		}
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			continue
		}
		pages++
		if m := inlineScript.FindString(text); m != "" {
			t.Errorf("%s has a script that the policy forbids: %s", todo[0], m)
		}
		for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
			link, _, _ := strings.Cut(m[1], "#")
			if link == "" || strings.Contains(link, ":") {
				continue
			}
			to := path.Join(path.Dir(todo[0]+"x"), link)
			if strings.HasSuffix(link, "/") || to == "/docs" {
				to += "/"
			}
			if !seen[to] {
				seen[to], todo = true, append(todo, to)
			}
		}
	}
	if pages < 60 || !seen["/docs/guides/user.html"] || !seen["/docs/reference/cli.html"] {
		t.Errorf("%d pages: %v", pages, seen)
	}
	_, text = get("/docs/search/search_index.json")
	var index struct {
		Docs []struct{ Location, Title, Text string }
	}
	if err := json.Unmarshal([]byte(text), &index); err != nil || len(index.Docs) < 300 {
		t.Errorf("the search index has %d entries: %v", len(index.Docs), err)
	}
}

// TestDocumentationSearchFindsPages verifies that the search of the documentation works in a browser.
//
//suite:part console full
func TestDocumentationSearchFindsPages(t *testing.T) {
	needRoot(t)
	consoleChecks(t, startServer(t, dataDir(t)), 3, "docs.mjs")
}

package brig_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fenced       = regexp.MustCompile("(?ms)^```.*?^```")
	notInAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns the anchors of a page's headings, as Markdown renderers generate
// them.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(text, " ", "-")] = true
	}
	return found
}

// brokenLinks returns the relative links of a page whose file or heading does
// not exist.
func brokenLinks(name, page string) (broken []string) {
	for _, m := range markdownLink.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		if strings.Contains(m[1], ":") {
			continue
		}
		path, anchor, _ := strings.Cut(m[1], "#")
		target := page
		if path != "" {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(name), path))
			if info, statErr := os.Stat(filepath.Join(filepath.Dir(name), path)); err != nil && (statErr != nil || !info.IsDir()) {
				broken = append(broken, m[1])
				continue
			}
			target = string(b)
		}
		if anchor != "" && !anchors(target)[anchor] {
			broken = append(broken, m[1])
		}
	}
	return broken
}

// TestDocumentLinks checks that the relative links in the documents refer to existing files
// and headings.
func TestDocumentLinks(t *testing.T) {
	pages := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "api/*/*.md", "sdk/*/*.md", "examples/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, link := range brokenLinks(name, string(b)) {
				t.Errorf("%s links to %s, which does not exist", name, link)
			}
		}
	}
	if pages < 50 {
		t.Errorf("only %d documents were checked", pages)
	}
	if got := brokenLinks("README.md", "[a](nowhere.md) [b](docs/STATUS.md#nowhere) [c](docs/STATUS.md#network-and-secrets)"); len(got) != 2 {
		t.Errorf("two of three links are broken, got %q", got)
	}
}

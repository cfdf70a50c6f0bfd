package brig_test

import (
	"bytes"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxArchitecture is the maximum number of lines of the architecture page.
const maxArchitecture = 200

// commonChanges are the changes whose files the architecture page lists.
var commonChanges = []string{
	"A REST field", "A limit", "A provider", "An API dialect", "A metric",
	"An audit field", "A language", "An error code", "A CLI command", "A console page",
}

// changesOf returns the paths that a page lists for each change in the section
// "Where do I change …?".
func changesOf(page string) map[string][]string {
	_, section, _ := strings.Cut(page, "\n## Where do I change …?\n")
	section, _, _ = strings.Cut(section, "\n## ")
	change, paths := "", map[string][]string{}
	for line := range strings.Lines(section) {
		if m := regexp.MustCompile(`^\*\*([^*]+)\*\*`).FindStringSubmatch(line); m != nil {
			change = m[1]
			paths[change] = nil
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			// Other code spans are commands or words without a file extension.
			if s := m[1]; change != "" && !strings.Contains(s, " ") && (strings.Contains(s, "/") || path.Ext(s) != "") {
				paths[change] = append(paths[change], s)
			}
		}
	}
	return paths
}

// missingPaths returns the paths that do not exist. A path with the placeholder
// NAME counts as existing if its directory exists.
func missingPaths(paths []string) (missing []string) {
	for _, p := range paths {
		at, _, _ := strings.Cut(p, "NAME")
		if at != p {
			at = path.Dir(at + "x")
		}
		if _, err := os.Stat(at); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}

// TestArchitecturePageListsFiles checks that the architecture page lists existing files
// for each common change, and that the page is short.
func TestArchitecturePageListsFiles(t *testing.T) {
	page, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte("\n")); n > maxArchitecture {
		t.Errorf("docs/ARCHITECTURE.md has %d lines, the limit is %d: move details to docs/internals.md", n, maxArchitecture)
	}
	changes := changesOf(string(page))
	for _, c := range commonChanges {
		if len(changes[c]) < 2 {
			t.Errorf("docs/ARCHITECTURE.md lists the files %q for %q, want at least two", changes[c], c)
		}
	}
	for c, paths := range changes {
		if !slices.Contains(commonChanges, c) {
			t.Errorf("docs/ARCHITECTURE.md lists an unknown change %q", c)
		}
		for _, p := range missingPaths(paths) {
			t.Errorf("docs/ARCHITECTURE.md, %s: %s does not exist", c, p)
		}
	}
}

// TestMissingPathsAreReported is the control for TestArchitecturePageListsFiles.
func TestMissingPathsAreReported(t *testing.T) {
	page := "# Page\n\n`before.go`\n\n## Where do I change …?\n\n**A limit**\n- `limits.go`, `missing.go`, `make docs`, `engine/missing.go`\n" +
		"- `provider/NAME/NAME.go`, `missing/NAME.go`, `missing/`\n\n## Next\n\n`after.go`\n"
	got := missingPaths(changesOf(page)["A limit"])
	if want := []string{"missing.go", "engine/missing.go", "missing/NAME.go", "missing/"}; !slices.Equal(got, want) {
		t.Errorf("the missing paths are %q, want %q", got, want)
	}
}

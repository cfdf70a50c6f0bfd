package failpoint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/failpoint"
)

var use = regexp.MustCompile(`failpoint\.(?:Hit|Fail)\(([^)]*)\)`)

// TestFailpointsMatchCode checks that every listed point occurs in the code
// exactly once, and that every point in the code is listed.
func TestFailpointsMatchCode(t *testing.T) {
	where := map[string][]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "tools" || d.Name() == "failpoint") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(name)
		for _, m := range use.FindAllStringSubmatch(string(src), -1) {
			point := strings.Trim(m[1], `"`)
			where[point] = append(where[point], name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range failpoint.Points {
		if n := len(where[p.Name]); n != 1 {
			t.Errorf("%s is in the code %d times: %v", p.Name, n, where[p.Name])
		}
		if p.After == "" {
			t.Errorf("%s says nothing of what has happened then", p.Name)
		}
		delete(where, p.Name)
	}
	for p, files := range where {
		t.Errorf("%v: %s is not listed", files, p)
	}
}

package brig_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// claimsPage is the page with the table of security claims and their tests.
const claimsPage = "docs/security-tests.md"

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	caseOf   = regexp.MustCompile(`^([a-z0-9/]+)\.([A-Za-z]\w*)$`) // a package's test, or a case of a conformance suite
	testName = regexp.MustCompile(`^Test[A-Z]\w*$`)
	fileName = regexp.MustCompile(`^[\w./-]+/[\w.-]+\.(?:go|py|ts)$`)
	suites   = map[string]bool{"servicetest": true, "store/storetest": true, "provider/providertest": true}
	evidence = map[string]bool{"server": true, "code": true, "revert": true, "control": true}
)

// TestSecurityTestsExist checks that every test and file in the table of
// security claims exists, and that each claim has a test. The tests named in
// SECURITY.md must exist, too.
func TestSecurityTestsExist(t *testing.T) {
	page, err := os.ReadFile(claimsPage)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := checkClaims(string(page))
	if err != nil {
		t.Error(err)
	}
	if claims < 60 {
		t.Errorf("%s has only %d claims", claimsPage, claims)
	}
	promises, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			return functions(name, all)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range quoted.FindAllStringSubmatch(string(promises), -1) {
		if testName.MatchString(m[1]) && !all[m[1]] {
			t.Errorf("SECURITY.md names %s, which does not exist", m[1])
		}
	}
}

// TestMissingSecurityTestsAreReported is the control for TestSecurityTestsExist: it checks that
// invalid rows are reported.
func TestMissingSecurityTestsAreReported(t *testing.T) {
	for row, want := range map[string]string{
		"| a | `brig.TestSecurityTestsExist` | c | control |":                                                                   "",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges`, `servicetest.testSecrets` | c | server: so |":                  "",
		"| a | `servicetest/vault.go` | `OPTIONS` | code, revert |":                                                             "",
		"| a | `api/httpapi.TestNoSuchTest` | c | control |":                                                                    "api/httpapi.TestNoSuchTest",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges`, `api/rest.TestCookieNeedsCSRFTokenForChanges` | c | control |": "api/rest.TestCookieNeedsCSRFTokenForChanges",
		"| a | `nowhere.TestCookieNeedsCSRFTokenForChanges` | c | control |":                                                    "nowhere.TestCookieNeedsCSRFTokenForChanges",
		"| a | `servicetest.noSuchCase` | c | control |":                                                                        "servicetest.noSuchCase",
		"| a | `sdk/python/tests/test_nothing.py` | c | control |":                                                              "test_nothing.py",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges` | `e2e.TestNothing` | control |":                                "e2e.TestNothing",
		"| a | TestCookieNeedsCSRFTokenForChanges | c | control |":                                                              "no test",
		"| a | `TestCookieNeedsCSRFTokenForChanges` | c | control |":                                                            "names no package",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges` | c | |":                                                        "how it was red",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges` | c | seems so |":                                               "how it was red",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges` | | control |":                                                  "no control",
		"| a | `api/httpapi.TestCookieNeedsCSRFTokenForChanges` | c | control | more |":                                         "5 cells",
	} {
		_, err := checkClaims("| Claim | Tests | Control | Red before |\n|---|---|---|---|\n" + row + "\n")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
	}
}

// checkClaims returns the number of claims on a page, and an error for each invalid
// claim.
func checkClaims(page string) (claims int, err error) {
	var wrong []error
	found := map[string]map[string]bool{} // functions by package
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Claim |") {
			continue
		}
		claims++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		bad := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("%s: %s: %s", claimsPage, strings.TrimSpace(cells[0]), fmt.Sprintf(format, args...)))
		}
		if len(cells) != 4 {
			bad("%d cells", len(cells))
			continue
		}
		tests := quoted.FindAllStringSubmatch(cells[1], -1)
		if len(tests) == 0 {
			bad("no test")
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if of := caseOf.FindStringSubmatch(m[1]); of != nil && testName.MatchString(of[2]) {
				tests = append(tests, m)
			}
		}
		for _, m := range tests {
			if err := exists(m[1], found); err != nil {
				bad("%v", err)
			}
		}
		if strings.TrimSpace(cells[2]) == "" {
			bad("no control")
		}
		for part := range strings.SplitSeq(cells[3], ";") {
			kinds, _, _ := strings.Cut(part, ":")
			for kind := range strings.SplitSeq(kinds, ",") {
				if !evidence[strings.TrimSpace(kind)] {
					bad("it does not say how it was red: %q", kind)
				}
			}
		}
	}
	return claims, errors.Join(wrong...)
}

// exists returns an error unless a file or a package's test with this name exists.
// found caches the function names of each package.
func exists(name string, found map[string]map[string]bool) error {
	if fileName.MatchString(name) {
		_, err := os.Stat(name)
		return err
	}
	of := caseOf.FindStringSubmatch(name)
	if of == nil {
		return fmt.Errorf("%s names no package", name)
	}
	pkg, pattern := of[1], "*_test.go"
	if suites[pkg] {
		pattern = "*.go"
	} else if !testName.MatchString(of[2]) {
		return fmt.Errorf("%s is no test", name)
	}
	if pkg == "brig" {
		pkg = "."
	}
	if found[pkg] == nil {
		found[pkg] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join(pkg, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := functions(file, found[pkg]); err != nil {
				return err
			}
		}
	}
	if !found[pkg][of[2]] {
		return fmt.Errorf("%s does not exist", name)
	}
	return nil
}

// functions adds the names of a file's functions to names.
func functions(file string, names map[string]bool) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			names[fn.Name.Name] = true
		}
	}
	return nil
}

package brig_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is this module's path.
const module = "github.com/brig-run/brig"

// tiers assigns a tier to each directory tree. A package may import only packages
// of lower tiers, so that packages of the same tier do not depend on each other.
// The longest matching prefix of a directory determines its tier.
var tiers = []struct {
	prefix string
	tier   int
	reason string
}{
	{"internal/", 0, "tools without knowledge of the domain"},
	{"guest/wire", 0, "messages between the host and the guest"},
	{"api/e2b/envd/processpb", 0, "generated messages of a protocol"},
	{"api/e2b/envd/filesystempb", 0, "generated messages of a protocol"},
	{"", 1, "domain types, errors and interfaces"},
	{"guest/agent", 1, "the agent in a sandbox: messages, parts of supervisors and the standard library"},
	{"guest/supervisor", 1, "supervisor on another host: messages, a journal, parts of supervisors and the standard library"},
	{"guest", 2, "toolkit of providers"},
	{"interpreter", 2, "drivers of interpreters, and their protocol"},
	{"image", 2, "toolkit of providers"},
	{"egress", 2, "network access of sandboxes"},
	{"screen", 2, "checks of code before it runs"},
	{"webhook", 2, "delivery of lifecycle events to webhooks"},
	{"volume", 2, "images of volumes, and their files"},
	{"builder", 2, "builds of templates, in sandboxes of a brig.Service"},
	{"tool", 2, "the rules of agents' tools"},
	{"workspace", 2, "directories that outlive sandboxes"},
	{"remote", 2, "calls of other services"},
	{"schema", 2, "schemas of provider configurations"},
	{"audit", 2, "hash chain of the audit log, and its verification"},
	{"signin", 2, "sign-in with an identity provider"},
	{"observe", 2, "metrics"},
	{"alert", 2, "alert rules and notifications"},
	{"api/httpapi", 2, "library of the HTTP APIs"},
	{"api/v1", 2, "JSON types that the server and its clients share"},
	{"provider/providertest", 2, "conformance suite"},
	{"provider/ssh/sshtest", 2, "a machine behind SSH, for tests"},
	{"api/httpapi/transcript", 2, "conformance suite"},
	{"provider/agentrun/agentruntest", 2, "fake of a service, for tests"},
	{"store/storetest", 2, "conformance suite"},
	{"store/contract", 2, "checks that all stores share"},
	{"servicetest", 2, "conformance suite"},
	{"chaos", 2, "fault injection against a server"},
	{"engine/attest", 2, "attestation of an instance's isolation"},
	{"engine/capacity", 2, "admission of creations"},
	{"engine/output", 2, "delivery of output within memory bounds"},
	{"engine/placement", 2, "choice and state of providers"},
	{"engine/quota", 2, "usage and quotas of tenants"},
	{"engine", 3, "policy: implements brig.Service"},
	{"provider/", 3, "providers of instances"},
	{"store/", 3, "stores of records"},
	{"api/", 3, "APIs on top of brig.Service"},
	{"ui", 3, "console, a client of the API"},
	{"client", 3, "client of the REST API"},
	{"cmd/", 4, "wiring"},
	{"examples", 4, "examples in separate modules"},
	{"e2e", 4, "wiring, for tests"},
	{"bench", 4, "wiring, for measurements"},
}

// foundation maps a package to the packages of its own tier that may import it. For
// example, the package of the JSON types is below the other API packages.
var foundation = map[string][]string{
	"api/v1":           {"api/httpapi"},
	"internal/attack":  {"internal/suite"},
	"internal/threads": {"internal/caps", "internal/cgroup"},
}

func tierOf(dir string) int {
	best, tier := -1, -1
	for _, r := range tiers {
		fits := r.prefix == dir || r.prefix != "" && strings.HasPrefix(dir+"/", strings.TrimSuffix(r.prefix, "/")+"/")
		if fits && len(r.prefix) > best {
			best, tier = len(r.prefix), r.tier
		}
	}
	return tier
}

// sources calls f for every Go file of the module, with its directory ("" is the
// root). It reads the files in the test process, so that the test cache records
// them as dependencies.
func sources(t *testing.T, f func(name, dir string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "tools" || base == "bin" || base == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(src, []byte("// Code generated ")) {
			return nil // generated files are not maintained by hand
		}
		dir := path.Dir(filepath.ToSlash(name))
		if dir == "." {
			dir = ""
		}
		f(filepath.ToSlash(name), dir, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// violations returns a message for each import of a file that breaks the rules.
func violations(t *testing.T, name, dir string, src []byte) (out []string) {
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	if tierOf(dir) < 0 {
		out = append(out, name+": its folder stands in no tier")
	}
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		to, ours := strings.CutPrefix(imp, module)
		to = strings.TrimPrefix(to, "/")
		foreign := strings.Contains(strings.Split(imp, "/")[0], ".")
		switch {
		case ours && dir != "" && slices.Contains(foundation[to], dir):
		case ours && tierOf(to) >= tierOf(dir):
			out = append(out, name+": imports "+imp+", which does not stand below it")
		case dir == "" && (ours || foreign):
			out = append(out, name+": the root may import only the standard library, not "+imp)
		case inGuest(dir) && foreign && !(ours && (to == "guest/wire" || to == "internal/threads" || to == "internal/nofollow" || to == "internal/sparse" || to == "internal/supervise" || dir == "guest/supervisor" && to == "internal/journal")):
			out = append(out, name+": inside the guest is only the standard library, not "+imp)
		case strings.HasPrefix(dir, "internal/") && ours && !strings.HasPrefix(to, "internal/"):
			out = append(out, name+": a tool imports "+imp)
		}
	}
	return out
}

// inGuest reports whether a directory is part of the agent's program.
func inGuest(dir string) bool {
	return strings.HasPrefix(dir, "guest/agent") || strings.HasPrefix(dir, "guest/supervisor") || strings.HasPrefix(dir, "guest/wire") || dir == "internal/journal" || dir == "internal/nofollow" || dir == "internal/sparse" || dir == "internal/supervise"
}

func TestImportsFollowLayers(t *testing.T) {
	files := 0
	sources(t, func(name, dir string, src []byte) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		files++
		for _, v := range violations(t, name, dir, src) {
			t.Error(v)
		}
	})
	if files < 50 {
		t.Errorf("saw only %d files: does the walk still work?", files)
	}
}

// TestImportViolationsAreReported checks that TestImportsFollowLayers detects
// violations.
func TestImportViolationsAreReported(t *testing.T) {
	for _, p := range []struct{ dir, imp string }{
		{"api/rest", module + "/engine"},
		{"provider/fake", module + "/store/mem"},
		{"engine", module + "/provider/gvisor"},
		{"client", module + "/api/rest"},
		{"guest/agent", module},
		{"guest/agent", "golang.org/x/sys/unix"},
		{"guest/supervisor", module},
		{"guest/supervisor", "golang.org/x/sys/unix"},
		{"guest/supervisor", module + "/internal/cgroup"},
		{"guest/agent", module + "/internal/journal"},
		{"internal/journal", "golang.org/x/sys/unix"},
		{"internal/nofollow", "golang.org/x/sys/unix"},
		{"internal/supervise", "golang.org/x/sys/unix"},
		{"guest/wire", module},
		{"guest", module + "/image"},
		{"internal/cgroup", module},
		{"", module + "/guest"},
		{"", "golang.org/x/sys/unix"},
		{"util", "fmt"},
		{"api/v1", module + "/api/httpapi"},
	} {
		src := []byte("package p\nimport _ \"" + p.imp + "\"\n")
		if len(violations(t, p.dir+"/planted.go", p.dir, src)) == 0 {
			t.Errorf("%s may import %s", p.dir, p.imp)
		}
	}
}

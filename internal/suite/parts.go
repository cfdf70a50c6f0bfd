// Package suite selects the tests that run in each job, runs them, and reports
// the results.
//
// `make test` runs every package and the end-to-end tests at small size. `make
// test-all` runs all tests at full size, in parts that can run alone. CI runs
// `make test`; `make test-changed` runs the parts that the changed files affect.
package suite

import (
	"fmt"
	"strings"
)

// Part is a named piece of `make test-all`.
type Part struct {
	Name string
	What string
	// Packages is set for the part that runs packages with go test. Race is set for the part
	// that runs the end-to-end tests of `make test` and its own tests on programs built with
	// the race detector. The other parts run the end-to-end tests that are assigned to them.
	Packages, Race bool
}

// Parts lists the parts in their execution order.
func Parts() []Part {
	return []Part{
		{Name: "packages", What: "every package but e2e, with the race detector, and the modules of examples", Packages: true},
		{Name: "core", What: "sandboxes, executions, limits, verdicts, tools, templates, the REST API"},
		{Name: "hostile", What: "attacks from inside a sandbox and on the API, posture, tenancy, sign-in"},
		{Name: "egress", What: "network rules, brokered secrets and their controls"},
		{Name: "crash", What: "crash points, random kills, restarts, full disks"},
		{Name: "workspaces", What: "workspaces, in folders and on an S3 server"},
		{Name: "clients", What: "unmodified clients: E2B, MCP, Letta, smolagents, RAGFlow, Python, TypeScript"},
		{Name: "console", What: "the web console in a browser"},
		{Name: "providers", What: "conformance of every provider but Docker, and routing between them"},
		{Name: "docker", What: "the Docker provider with a Docker Engine"},
		{Name: "install", What: "packages, the release, the systemd unit, the guides, rootless use, virtual machines with cgroup v2 and arm64"},
		{Name: "race", What: "the end-to-end tests of make test on a server, shim and agent built with the race detector", Race: true},
	}
}

// PartNamed returns the part with the given name.
func PartNamed(name string) (Part, error) {
	var names []string
	for _, p := range Parts() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Part{}, fmt.Errorf("no part is named %q; the parts are %s", name, strings.Join(names, ", "))
}

// partNames returns the names of all parts.
func partNames() (names []string) {
	for _, p := range Parts() {
		names = append(names, p.Name)
	}
	return names
}

// raced lists the packages that `make test` runs with the race detector, because many of their
// goroutines share memory. The part "packages" runs all packages with the detector.
var raced = []string{
	"./alert", "./api/...", "./client", "./api/httpapi/...", "./egress", "./engine/...", "./guest/...", "./observe",
	"./provider/docker", "./provider/gvisor", "./provider/ssh", "./remote", "./signin", "./workspace",
}

// plain lists the packages that no plan may run only with the race detector, because some of
// their tests measure time or memory, or have one goroutine. A test keeps the list complete.
// `make test` runs only these tests without the detector (plainTests), the part "packages" all
// tests of the packages.
var plain = []string{"./egress", "./image", "./provider/docker", "./signin", "./workspace"}

// Area maps a path to its parts of `make test-all`.
type Area struct {
	Path  string // a file, or a directory with all files below it
	Parts []string
}

// Areas returns the table that maps paths to parts. The longest matching path
// applies. A test checks the table against the tree: each file has a row, and
// each row matches a file.
func Areas() []Area {
	all := partNames()
	return []Area{
		{".ci", nil}, // .ci/run executes these files itself
		{".ci/debian", []string{"install"}},
		{".ci/image", []string{"install"}},
		{".ci/notices", []string{"install"}},
		{".ci/npm", []string{"install"}},
		{".ci/package", []string{"install"}},
		{".ci/previous", []string{"install"}},
		{".ci/program", []string{"install"}},
		{".ci/release", []string{"install"}},
		{".ci/rpm", []string{"install"}},
		{".ci/site", []string{"console"}},
		{".ci/version", []string{"install"}},
		{".ci/wheel", []string{"clients"}},
		{".githooks", nil},
		{".github", nil},
		{".gitignore", nil},
		{"CHANGELOG.md", nil},
		{"CODE_OF_CONDUCT.md", nil},
		{"CONTRIBUTING.md", nil},
		{".golangci.yml", nil},
		{"LICENSE", nil},
		{"Makefile", nil},
		{"NOTICE", nil},
		{"README.md", []string{"install"}},
		{"SECURITY.md", nil},
		{"docs", nil},
		{"docs/guides", []string{"install"}},
		{"docs/tutorials", []string{"install"}},
		{"go.mod", all},
		{"go.sum", all},
		{"install.sh", []string{"install"}},
		{"tools", nil},
		{"tools/agentrun", []string{"providers"}},
		{"tools/release", []string{"install"}},

		{"", []string{"core", "race"}}, // the Go files in the root
		{"engine", []string{"core", "hostile", "crash", "race"}},
		{"api/httpapi", []string{"core", "hostile", "clients", "race"}},
		{"client", []string{"core", "clients", "race"}},
		{"cmd", []string{"core", "install"}},
		{"cmd/brig-agent", []string{"core", "hostile", "docker"}},
		{"cmd/brig-engine", []string{"core", "hostile", "crash"}},
		{"cmd/brig-shim", []string{"core", "hostile", "crash"}},
		{"store", []string{"core", "crash", "race"}},
		{"audit", []string{"hostile", "crash"}},
		{"signin", []string{"hostile"}},
		{"alert", []string{"core"}},
		{"observe", []string{"core"}},
		{"screen", []string{"core"}},
		{"tool", []string{"core", "clients"}},
		{"schema", []string{"providers"}},
		{"chaos", []string{"crash"}},
		{"bench", nil},
		{"servicetest", []string{"core"}},

		{"egress", []string{"egress", "race"}},
		{"remote", []string{"egress", "providers"}},
		{"builder", []string{"clients", "race"}},
		{"webhook", []string{"clients", "race"}},
		{"volume", []string{"clients", "core", "race"}},
		{"workspace", []string{"workspaces", "race"}},
		{"image", []string{"core", "hostile"}},
		{"interpreter", []string{"core", "clients"}},
		{"guest", []string{"core", "hostile", "providers", "docker", "race"}},

		{"provider", []string{"providers"}},
		{"provider/docker", []string{"docker"}},
		{"provider/fake", []string{"core"}},
		{"provider/gvisor", []string{"core", "hostile", "crash", "providers", "race"}},
		{"provider/providertest", []string{"providers", "docker"}},
		{"provider/ssh", []string{"providers"}},

		{"api/admin", []string{"hostile", "console"}},
		{"api/e2b", []string{"clients"}},
		{"api/execman", []string{"clients", "providers"}},
		{"api/kernels", []string{"clients"}},
		{"api/letta", []string{"clients"}},
		{"api/mcp", []string{"clients"}},
		{"api/v1", []string{"core", "clients", "race"}},
		{"api/rest", []string{"core", "hostile", "console"}},
		{"sdk", []string{"clients"}},
		{"examples", []string{"clients"}},
		{"ui", []string{"console"}},

		{"internal", []string{"core"}},
		{"internal/attack", nil}, // `make test` records attacks, too
		{"internal/caps", []string{"hostile"}},
		{"internal/cgroup", []string{"core", "install"}},
		{"internal/exactjson", []string{"hostile", "clients"}},
		{"internal/failpoint", []string{"crash"}},
		{"internal/mutants", nil},
		{"internal/nofollow", []string{"core", "hostile", "docker"}},
		{"internal/outbound", []string{"providers"}},
		{"internal/peersock", []string{"core", "hostile"}},
		{"internal/prefilter", []string{"hostile"}},
		{"internal/race", []string{"race"}},
		{"internal/seal", []string{"egress"}},
		{"internal/suite", nil},
		{"internal/sparse", []string{"core", "workspaces"}},
		{"internal/supervise", []string{"core", "crash", "providers", "docker"}},
		{"internal/testenv", nil},
		{"internal/threads", []string{"hostile", "race"}},
		{"internal/wiretypes", nil},

		{"e2e", nil}, // the part of each changed test is added
		{"e2e/console", []string{"console"}},
		{"e2e/e2b", []string{"clients"}},
		{"e2e/letta", []string{"clients"}},
		{"e2e/mcp", []string{"clients"}},
		{"e2e/oidc", []string{"hostile"}},
		{"e2e/openapi", []string{"core"}},
		{"e2e/probe", []string{"hostile", "egress"}},
		{"e2e/python", []string{"clients"}},
		{"e2e/smolagents", []string{"clients"}},
		{"e2e/testdata", []string{"hostile", "install"}},
	}
}

// AreaOf returns the row of the table for a file.
func AreaOf(file string, areas []Area) (Area, bool) {
	best, found := Area{}, false
	for _, a := range areas {
		fits := a.Path == file || strings.HasPrefix(file, a.Path+"/")
		if a.Path == "" {
			fits = !strings.Contains(file, "/") && strings.HasSuffix(file, ".go")
		}
		if fits && (!found || len(a.Path) > len(best.Path)) {
			best, found = a, true
		}
	}
	return best, found
}

// PartsFor returns the parts that changed files affect, in the order of Parts,
// and for each part the first file that selects it. A file without a row
// selects all parts.
func PartsFor(files []string, tests []Test) ([]string, map[string]string) {
	reasons := map[string]string{}
	ask := func(file string, parts ...string) {
		for _, p := range parts {
			if reasons[p] == "" {
				reasons[p] = file
			}
		}
	}
	for _, file := range files {
		area, ok := AreaOf(file, Areas())
		if !ok {
			ask(file, partNames()...)
			continue
		}
		ask(file, area.Parts...)
		for _, t := range tests {
			if t.File == file {
				ask(file, t.Part)
			}
		}
	}
	var names []string
	for _, name := range partNames() {
		if reasons[name] != "" {
			names = append(names, name)
		}
	}
	return names, reasons
}

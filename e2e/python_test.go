package e2e

import (
	"compress/gzip"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// pythonTools lists the dependency of the Python package, and the tools that test the package.
var pythonTools = []string{"httpx==0.28.1", "mypy==2.4.1", "pytest==9.2.0", "ruff==0.17.6"}

// pythonPackage builds the package's wheel and returns a PYTHONPATH with the
// wheel and the tools.
func pythonPackage(t *testing.T) string {
	t.Helper()
	tools := cached(t, "pip", strings.Join(pythonTools, " "), func(dir string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "python3", append([]string{"-m", "pip", "install", "-q", "--target", dir}, pythonTools...)...)
	})
	dir := t.TempDir()
	output(t, "../.ci/wheel", dir)
	site := filepath.Join(dir, "site")
	output(t, "python3", "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheelOf(t, dir))
	return site + ":" + tools
}

// pythonLister lists the sandboxes of a data folder for each line of its input, with a blocking
// client and an asyncio client that stay open until it ends.
const pythonLister = `
import asyncio, sys
import brig, brig.sync

async def main():
    where = {"data_dir": sys.argv[1], "binary": "/no/such/brig"}
    clients = [brig.sync.SandboxClient("local", **where), brig.SandboxClient("local", **where)]
    for line in sys.stdin:
        for client in clients:
            try:
                names = client.list()
                print(*(await names if asyncio.iscoroutine(names) else names), end=" ")
            except brig.BrigError as e:
                print(type(e).__name__, end=" ")
        print(flush=True)

asyncio.run(main())
`

// TestPythonOutlivesServer is like TestClientsOutliveServer, but for the clients of the Python
// package.
//
//suite:part clients full
func TestPythonOutlivesServer(t *testing.T) {
	path := pythonPackage(t)
	dir, port := t.TempDir(), testenv.Port(t)
	listen := []string{"--pool", "-1", "--listen", fmt.Sprintf("127.0.0.1:%d", port)}
	s := startServer(t, dir, listen...)
	brigCommand(t, dir, "sandbox", "create", "box")
	clients := newTalker(t, pythonSDK(t, path, nil, "-c", pythonLister, dir))
	list := func() string {
		t.Helper()
		clients.send("")
		return clients.receive()
	}
	if got := list(); got != "box box" {
		t.Errorf("with the server: %s", got)
	}
	s.kill()
	other := newImposter(t, port)
	for range 2 {
		if got := list(); got != "SandboxUnavailable SandboxUnavailable" {
			t.Errorf("without a server: %s", got)
		}
	}
	if got := other.takeReceived(); got != "" {
		t.Errorf("another process hears %q", got)
	}
	control := "import sys, brig.sync; brig.sync.SandboxClient(*sys.argv[1:2], key=sys.argv[2]).list()"
	_ = pythonSDK(t, path, nil, "-c", control, s.url, s.key).Run()
	if got := other.takeReceived(); !strings.Contains(got, s.key) {
		t.Errorf("the control: another process hears %q", got)
	}
	other.close()
	startServer(t, dir, listen...)
	if got := list(); got != "box box" {
		t.Errorf("with the next server: %s", got)
	}
}

// pythonSDK returns a command that runs in the package's source directory,
// without the test's environment.
func pythonSDK(t *testing.T, path string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{"-B"}, args...)...)
	cmd.Dir = "../sdk/python"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "PYTHONPATH=" + path, "LC_ALL=C.UTF-8"}, env...)
	return cmd
}

// TestPython runs the Python package's own tests against its wheel: with a server, with the E2B
// API, and with an engine that is started on demand.
//
//suite:part clients full
func TestPython(t *testing.T) {
	needVolumes(t)
	s := startE2B(t)
	path := pythonPackage(t)
	for name, args := range map[string][]string{
		"typed":  {"-m", "mypy", "--cache-dir=" + t.TempDir()},
		"linted": {"-m", "ruff", "check", "--no-cache"},
		"made":   {"tools/unasync.py", "--check"},

		"typed examples":  {"-m", "mypy", "--strict", "--cache-dir=" + t.TempDir(), "../../examples/python"},
		"linted examples": {"-m", "ruff", "check", "--no-cache", "--isolated", "--line-length", "130", "--select", "E,F,I,B,UP,SIM", "../../examples/python"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := pythonSDK(t, path, []string{"MYPYPATH=src"}, args...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	env := append([]string{"BRIG_REPORT=1", "BRIG_URL=" + s.url, "BRIG_API_KEY=" + s.server.key, "BRIG_BINARY=" + bin(t, "brig")}, s.env...)
	report(t, pythonSDK(t, path, env, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--basetemp="+t.TempDir()+"/p"), 165)
}

// Images that the script uses.
const (
	pythonSlim = "python:3.11-slim"
	nodeSlim   = "node:20-slim"
)

// TestPythonScript verifies that a script prints the same output with a local engine, a server, a
// Docker Engine and the E2B protocol. With E2B, the test excludes features that the protocol
// lacks.
//
//suite:part clients full
func TestPythonScript(t *testing.T) {
	needRoot(t)
	if os.Getenv("BRIG_LAB") == "" { // outside the lab, which has no network
		if _, err := exec.LookPath("mmdebstrap"); err != nil {
			t.Skip("no mmdebstrap (make setup installs it)")
		}
		t.Setenv("PYTHONPATH", pythonPackage(t))
		dockerRootFS(t)
	}
	if !runInLab(t) {
		return
	}
	l := newEgressLab(t)
	l.name("ok.test", good)
	l.name("other.test", evilAddr)
	l.serve(80, respond)
	config := "metrics: {trial: 0s}\npool: {size: -1}\negress: {resolver: \"" + nameOne + "\"}\nimages: {mirrors: {docker.io: [\"" + slimImages(t) + "\"]}"
	lazy, eager := writeConfig(t, config+"}\n"), writeConfig(t, config+", pull_missing: true}\n")
	golden, err := os.ReadFile("../sdk/python/tests/script.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := string(golden)
	prints := func(t *testing.T, want string, env ...string) {
		t.Helper()
		cmd := pythonSDK(t, os.Getenv("PYTHONPATH"), env, "tests/script.py")
		var errs strings.Builder
		cmd.Stderr = &errs
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%v: it prints\n%swant\n%s%s", err, out, want, &errs)
		}
	}
	t.Run("local", func(t *testing.T) {
		prints(t, want, "BRIG_DATA_DIR="+dataDir(t), "BRIG_BINARY="+bin(t, "brig"), "BRIG_CONFIG="+lazy)
	})
	s := startE2B(t, "--config", eager)
	t.Run("server", func(t *testing.T) { prints(t, want, "BRIG_URL="+s.url, "BRIG_API_KEY="+s.server.key) })
	t.Run("e2b", func(t *testing.T) {
		before, after, _ := strings.Cut(want, "secret:")
		_, after, _ = strings.Cut(after, "allowed:")
		templates := "BRIG_TEMPLATES=" + pythonSlim + "=base," + nodeSlim + "=base"
		prints(t, before+"given: refused, secrets\nallowed:"+after, append(s.env, "BRIG_URL=e2b", templates)...)
	})
	t.Run("docker", func(t *testing.T) { s.scriptAtDocker(t, prints, want) })
}

// scriptAtDocker runs the script with a server that creates sandboxes only on a Docker Engine.
func (s *e2bServer) scriptAtDocker(t *testing.T, prints func(*testing.T, string, ...string), want string) {
	d := startDocker(t)
	for _, name := range []string{pythonSlim, nodeSlim} {
		if _, err := d.api.ImageTag(t.Context(), client.ImageTagOptions{Source: d.image, Target: name}); err != nil {
			t.Fatal(err)
		}
	}
	s.configure("docker", map[string]any{"host": d.host, "image": pythonSlim, "runtime": "runc", "pull": "never"})
	if err := s.client().SetRouting(t.Context(), "", brig.Routing{Order: []string{"docker", here}}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	prints(t, want, "BRIG_URL="+s.url, "BRIG_API_KEY="+s.server.key)
	// Remove the containers before their engine stops.
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	// A probe of the enforcement may have created an additional container.
	if n := d.created(t, begin); n < 7 || n > 8 {
		t.Errorf("%d containers created, want 7: one for each sandbox, including the one with egress rules", n)
	}
}

// created counts the containers created since a time.
func (l *dockerLab) created(t *testing.T, since time.Time) (n int) {
	t.Helper()
	filters := make(client.Filters).Add("type", "container").Add("event", "create")
	all := l.api.Events(t.Context(), client.EventsListOptions{Since: since.Format(time.RFC3339Nano), Until: time.Now().Format(time.RFC3339Nano), Filters: filters})
	for {
		select {
		case <-all.Messages:
			n++
		case <-all.Err: // including io.EOF
			return n
		}
	}
}

// slimImages returns the address of a registry that replaces Docker's. It provides the script's
// images, which have the same root file system.
func slimImages(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(testLog{t}, "", 0))))
	t.Cleanup(srv.Close)
	files, err := tarball.LayerFromFile(dockerRootFS(t), tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pythonSlim, nodeSlim} {
		pushImage(t, strings.TrimPrefix(srv.URL, "http://")+"/library/"+name, v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}}, files)
	}
	return srv.URL
}

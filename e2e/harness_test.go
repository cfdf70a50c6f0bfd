package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/internal/diskimage"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/seal"
	"github.com/brig-run/brig/internal/testenv"
	"github.com/brig-run/brig/provider/gvisor"
	"github.com/brig-run/brig/store/sqlite"
	"github.com/brig-run/brig/volume"
	"github.com/brig-run/brig/workspace"
)

// bin returns the path of a program that was built for the tests.
func bin(t testing.TB, name string) string {
	t.Helper()
	return testenv.Bin(t, name)
}

// needRoot skips the test if the user is not root.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// needVolumes skips a test if this machine cannot mount volumes.
func needVolumes(t testing.TB) {
	t.Helper()
	needRoot(t)
	if err := diskimage.Check(); err != nil {
		t.Skip(err)
	}
}

// newProvider opens the gVisor provider on the given data folder.
func newProvider(t testing.TB, dir string, disabled ...string) (*gvisor.Provider, *image.Store) {
	t.Helper()
	images, err := image.Open(image.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	engine, shim := bin(t, "brig-engine"), bin(t, "brig-shim")
	if disabled = slices.DeleteFunc(disabled, func(s string) bool { return s == "" }); len(disabled) > 0 {
		// Only programs with failpoints can disable protections.
		if !failpoint.Enabled {
			t.Fatal("build the tests with -tags failpoints (make test-programs)")
		}
		engine = bin(t, "test/brig-failpoints")
		shim = engine
	}
	p, err := gvisor.Open(gvisor.Options{
		DataDir: dir, Engine: engine, Shim: shim, Agent: bin(t, "brig-agent"), Disabled: disabled,
		Volume: volumesOf(t, dir).ImageFunc(),
		Root: func(digest string) (gvisor.Root, error) {
			r, err := images.Root(digest)
			out := gvisor.Root{Dir: r.Dir}
			for _, b := range r.Binds {
				out.Binds = append(out.Binds, gvisor.Bind(b))
			}
			return out, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, images
}

// volumesOf opens the volumes of a data folder.
func volumesOf(t testing.TB, dir string) *volume.Store {
	t.Helper()
	s, err := volume.Open(filepath.Join(dir, "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newEngine returns an engine on real gVisor, and a context that acts as an
// operator of the tenant "acme".
func newEngine(t testing.TB, disabled ...string) (*engine.Engine, context.Context) {
	t.Helper()
	return engineWith(t, engine.Options{Log: slog.New(slog.NewTextHandler(testLog{t}, nil))}, disabled...)
}

// engineWith is like newEngine, but with the given options.
func engineWith(t testing.TB, o engine.Options, disabled ...string) (*engine.Engine, context.Context) {
	t.Helper()
	dir := t.TempDir()
	p, images := newProvider(t, dir, disabled...)
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "brig.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"acme", "rival", "other", "tenant-0", "tenant-1", "tenant-2", "tenant-3", "tenant-4"} {
		if err := store.PutTenant(t.Context(), &brig.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	o.Store, o.Provider, o.Images, o.LimitRange = store, p, images, brig.DefaultLimitRange()
	o.Keys, o.Seed = keyring(t), []byte("seed")
	if o.Workspaces == nil {
		o.Workspaces = folderOf(t, filepath.Join(dir, "workspaces"))
	}
	o.Volumes = volumesOf(t, dir)
	e := engine.New(t.Context(), o)
	ctx := brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Operator})
	onCleanup(t, func() {
		e.Close()
		o.Volumes.Close()
		ctx := context.WithoutCancel(ctx)
		if _, err := p.Sweep(ctx, nil); err != nil {
			t.Errorf("sweep: %v", err)
		}
		store.Close()
	})
	return e, ctx
}

// folderOf returns a store that keeps workspaces in a directory.
func folderOf(t testing.TB, dir string) *workspace.Store {
	t.Helper()
	objects, err := workspace.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return workspace.New(objects, nil)
}

// keyring returns a keyring with a new key that encrypts secrets.
func keyring(t testing.TB) *seal.Keyring {
	t.Helper()
	k, err := seal.Open(t.Context(), seal.File{Path: filepath.Join(t.TempDir(), "master.key")})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// server is a `brig serve` process.
type server struct {
	t    testing.TB
	dir  string
	cmd  *exec.Cmd
	url  string
	key  string
	errs *outputLog
}

// outputLog collects the output of a program. It may be read while the program runs.
type outputLog struct {
	mu  sync.Mutex
	all []byte
}

// Write implements io.Writer.
func (s *outputLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, p...)
	return len(p), nil
}

// Bytes returns a copy of the output.
func (s *outputLog) Bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.all)
}

// String implements fmt.Stringer.
func (s *outputLog) String() string { return string(s.Bytes()) }

// startServer starts a server on a data folder and waits until it is ready. Unless the arguments
// set the pool size, the pool has one sandbox, because starting and ending the default four takes
// longer than most tests.
func startServer(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	if !hasPoolSetting(t, args) {
		args = append(slices.Clone(args), "--pool", "1")
	}
	s := launchServer(t, bin(t, "brig"), nil, dir, args...)
	s.await()
	return s
}

// hasPoolSetting reports whether the arguments of a server, or its configuration file, set the size of
// the pool.
func hasPoolSetting(t testing.TB, args []string) bool {
	t.Helper()
	if slices.Contains(args, "--pool") {
		return true
	}
	i := slices.Index(args, "--config")
	if i < 0 {
		return false
	}
	text, err := os.ReadFile(args[i+1])
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(text, []byte("pool:"))
}

// launchServer starts a binary as a server, without waiting until it is ready.
func launchServer(t testing.TB, binary string, env []string, dir string, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: dir, errs: &outputLog{}}
	programs := filepath.Join(dir, "bin")
	if _, err := os.Stat(programs); err != nil { // if it exists, an earlier server has filled it
		linkPrograms(unpackedPrograms(t), programs)
	}
	s.cmd = exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir}, args...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.errs
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	own := filepath.Dir(dir) == filepath.Dir(t.TempDir())
	onCleanup(t, func() {
		s.kill()
		if line := panicLine.Find(s.errs.Bytes()); line != nil {
			t.Errorf("the server panicked: %s", line)
		}
		s.awaitOrphans()
		logs, _ := filepath.Glob(filepath.Join(dir, "sandboxes", "*", "shim.log"))
		for _, name := range logs {
			if b, err := os.ReadFile(name); err == nil && panicLine.Match(b) {
				t.Errorf("a shim panicked, %s", b)
			}
		}
		// Skip the data folder of another test, which may still be in use when this test ends.
		if own {
			removeSandboxes(t, dir)
		}
	})
	return s
}

// panicLine matches a panic in the output of a server. The suite does not retry a test that
// reports a panic.
var panicLine = regexp.MustCompile(`(?m)^(panic: |fatal error: ).*|.*(handler panicked|panic serving).*`)

// awaitOrphans waits until the ephemeral shims of a killed server have exited, because they write
// to the test's directory, which is about to be removed. Other sandboxes continue to run until
// the owner of the data folder ends them.
func (s *server) awaitOrphans() {
	for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		if !slices.ContainsFunc(lines, func(name string) bool {
			b, _ := os.ReadFile(name)
			_, rest, ok := bytes.Cut(b, []byte(s.dir+"/sandboxes/"))
			if !ok {
				return false
			}
			var order struct{ Ephemeral bool }
			id := string(rest[:max(0, bytes.IndexAny(rest, "/\x00"))])
			b, err := os.ReadFile(filepath.Join(s.dir, "sandboxes", id, "order.json"))
			return err != nil || json.Unmarshal(b, &order) != nil || order.Ephemeral
		}) {
			return
		}
	}
}

// await waits until the server is ready.
func (s *server) await() {
	t, dir := s.t, s.dir
	t.Helper()
	deadline := time.Now().Add(2 * promptTimeout)
	for time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		b, err := os.ReadFile(filepath.Join(dir, "server.json"))
		if err != nil {
			continue
		}
		var a struct {
			URL string
			PID int
		}
		if json.Unmarshal(b, &a) != nil || a.PID != s.cmd.Process.Pid {
			continue // this is the announcement of an earlier server
		}
		key, err := os.ReadFile(filepath.Join(dir, "admin.key"))
		if err != nil {
			t.Fatal(err)
		}
		s.url, s.key = a.URL, strings.TrimSpace(string(key))
		if resp, err := http.Get(s.url + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				linkPrograms(filepath.Join(dir, "bin"), unpackedPrograms(t))
				return
			}
		}
	}
	t.Fatalf("the server is not ready: %s", s.errs)
}

// unpackedPrograms returns a directory with the programs that servers unpack. The file names
// contain the digests.
func unpackedPrograms(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(bin(t, "test/e2e.test")), "unpacked")
}

// linkPrograms creates links to the unpacked programs of one directory in another one. Servers
// then need not unpack 44 MiB, and their programs share memory pages. Errors are ignored, because
// a server unpacks missing programs.
func linkPrograms(from, to string) {
	files, _ := filepath.Glob(filepath.Join(from, "brig-*"))
	if len(files) > 0 {
		_ = os.MkdirAll(to, 0o700)
	}
	for _, file := range files {
		_ = os.Link(file, filepath.Join(to, filepath.Base(file)))
	}
}

// kill ends the server with SIGKILL and waits until it has exited.
func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// stop ends the server with SIGTERM and waits until it has exited.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	return s.cmd.Wait()
}

// client returns a client of the server.
func (s *server) client() *client.Client {
	s.t.Helper()
	c, err := client.New(client.Options{URL: s.url, Key: s.key})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// do sends a raw request with the server's key, and returns the status and the body of the
// response.
func (s *server) do(method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// swapProgram repeatedly swaps two targets of a name until it is killed: a directory with the
// program's own file, and a symbolic link to a foreign directory.
const swapProgram = `
import ctypes, os, sys
real, link = sys.argv[1] + "/here", sys.argv[1] + "/there"
os.makedirs(real); open(real + "/canary", "w").write("mine"); os.symlink(sys.argv[2], link)
libc = ctypes.CDLL(None)
print("ready", flush=True)
while True:
    libc.renameat2(-100, real.encode(), -100, link.encode(), 2)
`

// TestAttackRaces verifies that a path always resolves inside the sandbox, even
// if a program modifies it while the API uses it.
//
//suite:part hostile
func TestAttackRaces(t *testing.T) {
	needRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "brig-canary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	secret := plantCanary(t, filepath.Join(dir, "canary"), 0o666)
	s := startServer(t, dataDir(t))
	ctx, c := t.Context(), s.client()
	if _, err := c.Create(ctx, brig.Spec{Name: "box", Limits: brig.Limits{CPUs: 1}}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Processes("box").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-u", "-c", swapProgram, "/workspace/race", dir}}})
	if err != nil {
		t.Fatal(err)
	}
	h, _ := listen(ctx, c.Processes("box"), p.PID, 0)
	h.until(t, "ready")
	const file = "/v1/sandboxes/box/files/content?path=/workspace/race/here/canary"
	var mu sync.Mutex
	responses := map[string]int{} // number of responses by method and status, which show whether the name was the directory, the link, or missing
	inParallel(1500, 4, func(i int) {
		method, body := http.MethodGet, ""
		if i%3 == 0 {
			method, body = http.MethodPut, "mine"
		}
		status, resp := s.file(method, file, body)
		mu.Lock()
		defer mu.Unlock()
		responses[fmt.Sprintf("%s %d", method, status)]++
		if strings.Contains(resp, secret) || status >= 500 {
			t.Errorf("%s: %d %s", method, status, resp)
		}
	})
	if responses["GET 200"] == 0 || len(responses) < 3 {
		t.Errorf("nothing was raced for: %v", responses)
	}
	b, err := os.ReadFile(filepath.Join(dir, "canary"))
	if err != nil || string(b) != secret {
		t.Errorf("the canary has %q, %v", b, err)
	}
	attack.RecordCase("FS-02", "1,500 reads and writes while the directory is exchanged for a link to the host's", t.Failed())
	t.Logf("%v", responses)
	raceOnHost(t, dir, secret)
}

// raceOnHost is the control: on the host, code that checks a path and opens it later reveals the
// canary.
func raceOnHost(t *testing.T, dir, secret string) {
	t.Helper()
	root := t.TempDir()
	here, there := filepath.Join(root, "here"), filepath.Join(root, "there")
	if err := os.Mkdir(here, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(here, "canary"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, there); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, here, unix.AT_FDCWD, there, unix.RENAME_EXCHANGE)
			}
		}
	})
	leaked := false
	for end := time.Now().Add(2 * promptTimeout); !leaked && time.Now().Before(end); {
		name := filepath.Join(here, "canary")
		if real, err := filepath.EvalSymlinks(name); err != nil || !strings.HasPrefix(real, root) {
			continue
		}
		b, err := os.ReadFile(name)
		leaked = err == nil && string(b) == secret
	}
	close(done)
	swaps.Wait()
	if !leaked {
		t.Error("the race is not won on the host either: it shows nothing")
	}
	attack.RecordMutant("FS-02", "who looks first and opens then, on the host", "opening inside the sandbox", leaked)
}

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// leftovers holds the cleanup functions for host resources of the running
// tests, newest last.
var leftovers struct {
	sync.Mutex
	list []*leftover
}

type leftover struct {
	remove func()
	dir    string // the parent of the test's temporary directories
}

// onCleanup registers a function that removes a resource from the host at the end of a test, or
// when a signal ends the run. Without it, servers and sandboxes would outlive a signal, because
// Go does not call Cleanup functions then.
func onCleanup(t testing.TB, f func()) {
	t.Helper()
	l := &leftover{sync.OnceFunc(f), filepath.Dir(t.TempDir())}
	leftovers.Lock()
	leftovers.list = append(leftovers.list, l)
	leftovers.Unlock()
	t.Cleanup(func() {
		l.remove()
		leftovers.Lock()
		defer leftovers.Unlock()
		leftovers.list = slices.DeleteFunc(leftovers.list, func(other *leftover) bool { return other == l })
	})
}

// awaitSignal waits for a signal from a user who interrupts the run, or from the suite, which
// ends hanging tests. It then removes all resources of the tests and exits.
func awaitSignal() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	s := <-c
	if s == syscall.SIGQUIT {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // shows where the test hangs
	}
	leftovers.Lock() // never unlocked, so that tests cannot create more resources
	for _, l := range slices.Backward(leftovers.list) {
		l.remove()
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	for _, l := range leftovers.list {
		if err == nil && !bytes.Contains(mounts, []byte(" "+l.dir+"/")) {
			os.RemoveAll(l.dir)
		}
	}
	os.Exit(1)
}

func TestMain(m *testing.M) {
	go awaitSignal()
	os.Exit(m.Run())
}

// TestInterrupt verifies that an interrupted test run leaves no server and no sandbox.
//
//suite:part core
func TestInterrupt(t *testing.T) {
	needRoot(t)
	if os.Getenv("BRIG_INTERRUPT") != "" {
		dir := dataDir(t)
		if _, err := startServer(t, dir, "--pool", "1").client().Create(t.Context(), brig.Spec{Name: "box", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		fmt.Println("ready", dir)
		select {}
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestInterrupt$", "-test.v")
		cmd.Env = append(os.Environ(), "BRIG_INTERRUPT=1")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := ""
		for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				dir = rest
			}
		}
		if dir == "" || len(traces(t, dir)) == 0 {
			t.Fatalf("the test has made nothing in %q", dir)
		}
		host := hostOf(t, dir)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%v: %v", signal, err)
		}
		if p, g, m := host.Processes(), host.Cgroups(), host.Mounts(); len(p)+len(g)+len(m) > 0 {
			t.Errorf("%v: left are the processes %v, cgroups %v and mounts %v", signal, p, g, m)
		}
		if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the test's folder is left: %v", signal, err)
		}
	}
}

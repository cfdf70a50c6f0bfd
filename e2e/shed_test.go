package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
	"github.com/brig-run/brig/internal/race"
)

// startInCgroup starts a server in a cgroup with a memory limit.
func startInCgroup(t *testing.T, memory int64, config string) *server {
	t.Helper()
	dir := t.TempDir()
	file, script := filepath.Join(dir, "brig.yaml"), filepath.Join(dir, "begin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nkill -STOP $$\nexec %s \"$@\"\n", bin(t, "brig")), 0o700); err != nil {
		t.Fatal(err)
	}
	g, err := cgroup.New(fmt.Sprintf("/brig-shed-%d", os.Getpid()), cgroup.Limits{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	onCleanup(t, func() {
		if err := g.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	s := launchServer(t, script, nil, dataDir(t), "--pool", "-1", "--config", file)
	pid := s.cmd.Process.Pid
	for end := time.Now().Add(promptTimeout); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && bytes.Contains(b, []byte(") T ")) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the server does not begin: %v", err)
		}
	}
	if err := g.Join(pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.await()
	return s
}

// resident returns the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// TestServerShedsLoad verifies that a server with a limit of 400 MiB that receives a gigabyte of
// concurrent request bodies rejects new work with 503, responds to read requests, and accepts
// work again afterwards, without being killed by the kernel. The control is a server without a
// memory limit, which uses more than 400 MiB.
//
//suite:part hostile
func TestServerShedsLoad(t *testing.T) {
	needRoot(t)
	if race.Enabled {
		t.Skip("the race detector keeps shadow memory that the Go runtime does not count, so the kernel would kill the server first")
	}
	const (
		limit   = 400 << 20
		callers = 20
		each    = 50 << 20
	)
	config := "requests: {bodies: 4GiB, tenant_bodies: 4GiB}\n"
	load := func(s *server) (refused int, end func()) {
		var all sync.WaitGroup
		var mu sync.Mutex // guards the fields below
		var conns []net.Conn
		body := bytes.Repeat([]byte("x"), 1<<20)
		for range callers {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			all.Go(func() {
				fmt.Fprintf(conn, "POST /v1/run HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 60000000\r\n\r\n{\"code\":\"", s.key)
				_ = conn.SetDeadline(time.Now().Add(promptTimeout))
				for range each >> 20 {
					if _, err := conn.Write(body); err != nil {
						break // the server has responded
					}
				}
				answer := make([]byte, 512)
				_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
				n, _ := conn.Read(answer) // accepted requests have no response yet
				if strings.Contains(string(answer[:n]), " 503 ") && strings.Contains(string(answer[:n]), "Retry-After") {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return refused, func() {
			for _, c := range conns {
				c.Close()
			}
		}
	}
	s := startInCgroup(t, limit, config)
	refused, end := load(s)
	if status, body := s.do("GET", "/v1/sandboxes", ""); status != 200 {
		t.Errorf("while it sheds: %d %s", status, body)
	}
	if refused == 0 || s.scrape().sum("brig_shed_total") == 0 {
		t.Errorf("%d of %d were refused", refused, callers)
	}
	end()
	for deadline := time.Now().Add(promptTimeout); ; time.Sleep(200 * time.Millisecond) {
		o, err := s.client().Run(t.Context(), brig.Program{Language: brig.Python, Code: "print(42)"}, brig.IO{})
		if err == nil && string(o.Stdout.Head) == "42\n" {
			break
		}
		if brig.KindOf(err) != brig.Unavailable || time.Now().After(deadline) {
			t.Fatalf("afterwards: %+v, %v: %s", o, err, s.errs)
		}
	}
	t.Logf("%d of %d were refused", refused, callers)

	free := configured(t, config)
	refused, end = load(free)
	defer end()
	if took := resident(t, free.cmd.Process.Pid); refused > 0 || took < limit {
		t.Errorf("control: %d were refused, and the server takes %d MiB", refused, took>>20)
	}
}

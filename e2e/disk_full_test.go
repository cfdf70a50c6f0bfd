package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// fill writes to a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// TestFullDisk verifies that a server with a full disk rejects operations that cannot succeed and
// reports the reason, and that acknowledged operations take effect. The server recovers
// automatically when space is available again.
//
//suite:part crash
func TestFullDisk(t *testing.T) {
	needRoot(t)
	disk := filepath.Join(t.TempDir(), "disk")
	dir := filepath.Join(disk, "data")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=160m,mode=700"); err != nil {
		t.Skipf("no disk of a size can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p, _ := newProvider(t, dir)
	t.Cleanup(func() {
		if _, err := p.Sweep(t.Context(), nil); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	s := startServer(t, dir, "--pool", "1")
	svc, ctx := s.client(), t.Context()
	if _, err := svc.Create(ctx, brig.Spec{Name: "before", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.RunCode(ctx, "before", brig.Code{Source: "x = 42"}, nil); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(disk, "filler")
	fill(t, filler)

	st, err := os.Stat(filler)
	if err != nil {
		t.Fatal(err)
	}
	i, full, free := 0, st.Size(), int64(0)
	runs, refused := map[string]bool{}, map[brig.Kind]int{}
	wantReported := func(what string, err error) {
		if err == nil {
			return
		}
		e := brig.AsError(err)
		refused[e.Kind]++
		if e.Kind == brig.Internal || free == 0 && !strings.Contains(e.Message, "disk is full") {
			t.Errorf("%s with %d bytes free: %s %q: %v", what, free, e.Kind, e.Message, err)
		}
	}
	// Without any space, no record can be written. With a little space, some records can be
	// written, and the creation of a sandbox fails halfway.
	for i, free = range []int64{0, 0, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		if err := os.Truncate(filler, full-free); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("full-%d", i)
		_, err := svc.Create(ctx, brig.Spec{Name: name})
		wantReported("create", err)
		if _, getErr := svc.Get(ctx, name); (err == nil) != (getErr == nil) {
			t.Errorf("create says %v, get says %v", err, getErr)
		}
		o, err := svc.Run(ctx, brig.Program{SandboxName: "run-" + name, Language: brig.Python, Code: "print(1)"}, brig.IO{})
		wantReported("run", err)
		runs["run-"+name] = err == nil && string(o.Stdout.Head) == "1\n"
		_, err = svc.Exec(ctx, "before", brig.Command{Argv: []string{"true"}}, brig.IO{})
		wantReported("exec", err)
	}
	if len(refused) == 0 {
		t.Error("nothing was refused: was the disk full?")
	}
	if status, body := s.do("POST", "/v1/run", `{"language":"python","code":"print(1)"}`); status != 200 && status != 503 {
		t.Errorf("a run on a full disk: %d %s", status, body)
	}
	if status, _ := s.do("GET", "/healthz", ""); status != 200 {
		t.Errorf("healthz: %d", status)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	for name, was := range runs {
		if o, err := svc.GetRun(ctx, name); was && (err != nil || string(o.Stdout.Head) != "1\n") {
			t.Errorf("run %s was answered and is %+v, %v", name, o, err)
		}
	}
	if res, err := svc.RunCode(ctx, "before", brig.Code{Source: "print(x)"}, nil); err != nil || string(res.Stdout.Head) != "42\n" {
		t.Errorf("the sandbox that was there before: %+v, %v", res, err)
	}
	start := time.Now()
	for {
		_, err := svc.Run(ctx, brig.Program{Language: brig.Python, Code: "print(1)"}, brig.IO{})
		if err == nil {
			break
		}
		if time.Since(start) > promptTimeout {
			t.Fatalf("with space again: %v", err)
		}
	}
	t.Logf("refused while full: %v; well again after %v", refused, time.Since(start).Round(time.Millisecond))
	removeAll(t, svc)
	checkOnlyPool(t, s)
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v: %s", err, tail(s.errs.Bytes()))
	}
	checkNoHostTraces(t, dir)
}

func tail(b []byte) string {
	return string(b[max(0, len(b)-2000):])
}

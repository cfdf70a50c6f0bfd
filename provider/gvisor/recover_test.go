package gvisor

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestRecoverAfterPowerFailure simulates a power failure, after which the
// order may be truncated and all processes have ended. The provider removes
// such a sandbox completely, but not while a process holds its lock.
func TestRecoverAfterPowerFailure(t *testing.T) {
	for _, text := range []string{"", `{"Version":`} {
		p := &Provider{Options: Options{DataDir: t.TempDir()}, rootless: true}
		const id = brig.ID("sbhalf")
		l := p.layout(id)
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(l.dir, orderFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lock, err := l.lock()
		if err != nil || lock == nil {
			t.Fatalf("lock: %v", err)
		}
		if _, err := p.Recover(t.Context(), id, brig.Handle{}); err == nil || brig.KindOf(err) == brig.NotFound {
			t.Errorf("%q of somebody who is there: %v", text, err)
		}
		if _, err := os.Stat(l.dir); err != nil {
			t.Errorf("%q of somebody who is there has been removed: %v", text, err)
		}
		lock.Close()
		if _, err := p.Recover(t.Context(), id, brig.Handle{}); brig.KindOf(err) != brig.NotFound {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := os.Stat(l.dir); !os.IsNotExist(err) {
			t.Errorf("%q has left something: %v", text, err)
		}
	}
}

// TestRestoreAfterKilledShim verifies that a restore removes the sentry's socket that
// a killed shim has left. Otherwise the new sentry could not create its own socket.
func TestRestoreAfterKilledShim(t *testing.T) {
	p := &Provider{Options: Options{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, rootless: true}
	const id = brig.ID("sbagain")
	l := p.layout(id)
	left := []string{exitFile, socketFile, configFile, filepath.Join(stateDir, controlFile), filepath.Join(overlayDir, "layer-1")}
	for _, name := range append(left, orderFile, logFile) {
		if err := os.MkdirAll(filepath.Dir(l.path(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l.path(name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.create(t.Context(), id, &order{ID: string(id), From: "save", Shim: l.path("no shim")}); err == nil {
		t.Fatal("it was created without a shim")
	}
	for _, name := range left {
		if _, err := os.Lstat(l.path(name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	for _, name := range []string{orderFile, logFile} {
		if _, err := os.Lstat(l.path(name)); err != nil {
			t.Error(err)
		}
	}
}

// TestSweepWaitsForTethered verifies the cleanup after a server that dies
// while a shim ends its sandbox. The shim leaves the directory to that server,
// and the next server removes the directory some time after the shim has
// exited.
func TestSweepWaitsForTethered(t *testing.T) {
	p := &Provider{Options: Options{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, rootless: true}
	const id = brig.ID("sbtied")
	l := p.layout(id)
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{orderFile: `{"Ephemeral":true}`, exitFile: `{"Code":137,"Reason":"killed"}`} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shim, err := l.lock()
	if err != nil || shim == nil {
		t.Fatalf("lock: %v", err)
	}
	if n, err := p.Sweep(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("Sweep = %d, %v, while its shim is there", n, err)
	}
	time.Sleep(300 * time.Millisecond)
	if _, err := os.Stat(l.dir); err != nil {
		t.Errorf("it was removed under its shim: %v", err)
	}
	shim.Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(l.dir); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("its folder is left")
		}
	}
}

// TestSweepKeepsProgramsOfUnknownSandboxes verifies that old programs are kept while the order of a
// sandbox cannot be read, because the sandbox may need them.
func TestSweepKeepsProgramsOfUnknownSandboxes(t *testing.T) {
	p := &Provider{Options: Options{DataDir: t.TempDir(), Programs: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, rootless: true}
	old := filepath.Join(p.Programs, "brig-engine-old")
	if err := os.WriteFile(old, []byte("engine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-2*programAge)); err != nil {
		t.Fatal(err)
	}
	unreadable := p.layout("sbunknown").path(orderFile)
	if err := os.MkdirAll(unreadable, 0o700); err != nil { // a directory cannot be read as a file
		t.Fatal(err)
	}
	if n, err := p.sweepPrograms(); n != 0 || err != nil {
		t.Errorf("removed %d programs, %v", n, err)
	}
	if err := os.Remove(unreadable); err != nil {
		t.Fatal(err)
	}
	if n, err := p.sweepPrograms(); n != 1 || err != nil {
		t.Errorf("removed %d programs after the sandbox had ended, %v", n, err)
	}
}

// TestExitFileCompatibility verifies that the format of exit files is compatible with earlier
// versions, in both directions.
func TestExitFileCompatibility(t *testing.T) {
	l := layout{dir: t.TempDir()}
	const file = `{"Code":3,"Reason":"exited","OOMKilled":false,"At":"1970-01-01T00:00:05Z"}`
	e := ending{Exit: brig.Exit{Code: 3, Reason: brig.Exited, At: time.Unix(5, 0).UTC()}}
	if err := l.writeJSON(exitFile, e, true); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(l.path(exitFile)); string(b) != file || err != nil {
		t.Errorf("the file is %s, %v; want %s", b, err, file)
	}
	var got ending
	if ok, err := l.readJSON(exitFile, &got); !ok || err != nil || got != e {
		t.Errorf("read %+v, %t, %v; want %+v", got, ok, err, e)
	}
}

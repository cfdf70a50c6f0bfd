package journal

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const logFile = "log"

// formatStamp formats a time as a line prefix.
func formatStamp(at time.Time) string { return at.UTC().Format(time.RFC3339) + " " }

// cutStamp removes the time from a line.
func cutStamp(line string) (at time.Time, rest string, ok bool) {
	before, rest, ok := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339, before)
	return at, rest, ok && err == nil
}

// timed returns the content of a directory's journal with time stamps.
func timed(t *testing.T, dir string) string {
	t.Helper()
	r, err := ReadTimed(filepath.Join(dir, logFile), formatStamp)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLogTimesRotateWithLog checks that the times are rotated with the log, even in
// the middle of a line. The times must never use more space than the log, even
// for very short writes.
func TestLogTimesRotateWithLog(t *testing.T) {
	dir := t.TempDir()
	if got := timed(t, dir); got != "" {
		t.Errorf("without a log: %q", got)
	}
	w, err := Open(filepath.Join(dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for range 9 {
		if _, err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	w.size = 0 // so that the next write is appended to this file
	if _, err := w.Write([]byte("begun ")); err != nil {
		t.Fatal(err)
	}
	w.size = maxSize + 1
	for range 50_000 {
		if _, err := w.Write([]byte(".")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{logFile, logFile + oldSuffix} {
		log, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		times, err := os.Stat(filepath.Join(dir, name+timesSuffix))
		if err != nil {
			t.Fatal(err)
		}
		if times.Size() == 0 || times.Size() > log.Size()+markSize || times.Size()%markSize != 0 {
			t.Errorf("%s: %d bytes of times for %d", name, times.Size(), log.Size())
		}
	}
	lines := strings.Split(timed(t, dir), "\n")
	if len(lines) != 10 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, l := range lines {
		at, rest, ok := cutStamp(l)
		if !ok || time.Since(at) > time.Hour || strings.Contains(rest, "Z") {
			t.Errorf("line %d is of %v: %.40q", i, at, rest)
		}
	}
	if _, rest, _ := cutStamp(lines[9]); rest != "begun "+strings.Repeat(".", 50_000) {
		t.Errorf("the line that went on has %d bytes", len(rest))
	}
}

// TestLogWithDamagedTimesIsReadable checks that a log remains readable when its times are
// missing or damaged.
func TestLogWithDamagedTimesIsReadable(t *testing.T) {
	for name, times := range map[string][]byte{
		"none": nil, "cut": []byte("short"), "wild": bytes.Repeat([]byte{0xff}, 40),
		"backwards": append(bytes.Repeat([]byte{1}, 16), make([]byte, 16)...),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, logFile), []byte("one\ntwo"), 0o600); err != nil {
			t.Fatal(err)
		}
		if times != nil {
			if err := os.WriteFile(filepath.Join(dir, logFile+timesSuffix), times, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		lines := strings.Split(timed(t, dir), "\n")
		if len(lines) != 2 || !strings.HasSuffix(lines[0], " one") || !strings.HasSuffix(lines[1], " two") {
			t.Errorf("%s: %q", name, lines)
		}
	}
}

// When two writers have a full journal open, the second writer continues in the file that the
// first has started. Otherwise, the old file would be lost.
func TestConcurrentWritersRotateOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), logFile)
	program, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if _, err := program.Write([]byte("begun\n" + strings.Repeat("x", maxSize) + "\n")); err != nil {
		t.Fatal(err)
	}
	host, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, w := range []struct {
		w    *Writer
		text string
	}{{host, "one\n"}, {program, "two\n"}, {host, "three\n"}, {program, "four\n"}} {
		if _, err := w.w.Write([]byte(w.text)); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[string]string{name: "one\ntwo\nthree\nfour\n", name + oldSuffix: "begun\n"} {
		if b, err := os.ReadFile(n); !strings.HasPrefix(string(b), want) || err != nil {
			t.Errorf("%s begins with %.40q, %v; want %q", filepath.Base(n), b, err, want)
		}
	}
}

package journal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFollow verifies that a Follower returns everything that is written, once: before it
// was opened and after it has reached the end, in several files, and by a writer that
// still has the old file open.
func TestFollow(t *testing.T) {
	for _, times := range []bool{false, true} {
		t.Run(fmt.Sprint("times ", times), func(t *testing.T) {
			name := filepath.Join(t.TempDir(), logFile)
			var format func(time.Time) string
			if times {
				format = stamp
			}
			f, err := Follow(name, format)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			read := func(want string) {
				t.Helper()
				b, err := io.ReadAll(f)
				got := string(b)
				if times {
					got = ""
					for line := range strings.Lines(string(b)) {
						at, rest, ok := cut(line)
						if ok && time.Since(at).Abs() > time.Minute {
							t.Errorf("a line of %v", at)
						}
						if !ok {
							rest = line // it continues a line
						}
						got += rest
					}
				}
				if err != nil || got != want {
					t.Fatalf("%.100q, %v, want %.100q", got, err, want)
				}
			}
			read("")
			one, err := Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			write := func(w *Writer, text string) {
				t.Helper()
				if _, err := io.WriteString(w, text); err != nil {
					t.Fatal(err)
				}
			}
			write(one, "a\nb")
			read("a\nb")
			write(one, "c\n")
			read("c\n")
			read("")
			slow, err := Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { slow.Close() }()
			for n := range 5 {
				one.size = maxSize + 1
				write(one, fmt.Sprintln("new", n))
				write(slow, fmt.Sprintln("old", n))
				read(fmt.Sprintf("old %[1]d\nnew %[1]d\n", n))
				slow.Close()
				if slow, err = Open(name); err != nil {
					t.Fatal(err)
				}
			}
			if len(f.parts) != 2 {
				t.Errorf("%d files are open", len(f.parts))
			}
		})
	}
}

// TestFollowKeepsFewFiles verifies that a Follower that is not read for a while, and one
// whose journal is removed, keep no more files open than a journal has.
func TestFollowKeepsFewFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), logFile)
	w, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := Follow(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 20 {
		w.size = maxSize + 1
		if _, err := io.WriteString(w, "x\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(f); err != nil || len(f.parts) > 2 {
			t.Fatalf("%d files, %v", len(f.parts), err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(f); err != nil {
		t.Error(err)
	}
}

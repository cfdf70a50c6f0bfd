package journal

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFollowerReturnsDataOnce verifies that a Follower returns all data exactly once: data from
// before it was opened, data from after it reached the end, data in several files, and data from a
// writer that still has the old file open.
func TestFollowerReturnsDataOnce(t *testing.T) {
	for _, timed := range []bool{false, true} {
		t.Run(fmt.Sprint("times ", timed), func(t *testing.T) {
			name := filepath.Join(t.TempDir(), logFile)
			var format func(time.Time) string
			if timed {
				format = formatStamp
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
				if timed {
					got = ""
					for line := range strings.Lines(string(b)) {
						at, rest, ok := cutStamp(line)
						if ok && time.Since(at).Abs() > time.Minute {
							t.Errorf("a line of %v", at)
						}
						if !ok {
							rest = line // this write continues a line
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

// TestFollowLineInTwoFiles verifies that a line in two files gets only one time stamp.
func TestFollowLineInTwoFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), logFile)
	w, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := Follow(name, formatStamp)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got strings.Builder
	for _, part := range []string{"begin", "end\nnext\n"} {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&got, f); err != nil {
			t.Fatal(err)
		}
		w.size = maxSize + 1
	}
	var lines []string
	for line := range strings.Lines(got.String()) {
		_, rest, _ := cutStamp(line)
		lines = append(lines, rest)
	}
	if strings.Join(lines, "") != "beginend\nnext\n" {
		t.Errorf("%q", &got)
	}
}

// TestFollowReadsMarksInOrder appends the marks of several processes out of order. They have
// the same effect as in a log that is read in one pass.
func TestFollowReadsMarksInOrder(t *testing.T) {
	name := filepath.Join(t.TempDir(), logFile)
	if err := os.WriteFile(name, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var marks []byte
	for _, m := range []mark{{4, time.Unix(2000, 0)}, {0, time.Unix(1000, 0)}} {
		marks = binary.LittleEndian.AppendUint64(marks, uint64(m.from))
		marks = binary.LittleEndian.AppendUint64(marks, uint64(m.at.UnixNano()))
	}
	if err := os.WriteFile(name+timesSuffix, marks, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Follow(name, formatStamp)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	once, err := ReadTimed(name, formatStamp)
	if err != nil {
		t.Fatal(err)
	}
	defer once.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	want, err := io.ReadAll(once)
	if err != nil || string(got) != string(want) || !strings.HasPrefix(string(got), formatStamp(time.Unix(1000, 0))) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestFollowKeepsFewFiles verifies that a Follower keeps no more files open than a journal has,
// even if it is not read for a while or its journal is removed.
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

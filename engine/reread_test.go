package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// wholeLog is an instance whose log can be read only from its start.
type wholeLog struct {
	brig.Instance
	log  []byte
	open int   // readers that are open
	read int   // bytes that the latest reader has read
	fail error // the error after the first bytes
}

func (w *wholeLog) TimedLogs(context.Context) (io.ReadCloser, error) {
	w.open++
	w.read = 0
	return &wholeReader{w, bytes.NewReader(bytes.Clone(w.log))}, nil
}

type wholeReader struct {
	of *wholeLog
	io.Reader
}

func (r *wholeReader) Read(p []byte) (int, error) {
	if r.of.fail != nil && r.of.read > 0 {
		return 0, r.of.fail
	}
	n, err := r.Reader.Read(p)
	r.of.read += n
	return n, err
}

func (r *wholeReader) Close() error {
	r.of.open--
	return nil
}

var rereadStart = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)

// TestRereadLogIsBounded verifies that the follower of a log without random access returns all
// lines and buffers only a small part of the log, whether the lines are short or very long.
func TestRereadLogIsBounded(t *testing.T) {
	stamp := brig.LogTime(rereadStart)
	for name, log := range map[string]string{
		"empty lines": strings.Repeat(stamp+"\n", 40_000),
		"one line":    stamp + strings.Repeat("x", 1<<20) + "\n",
	} {
		for _, timed := range []bool{false, true} {
			w := &wholeLog{log: []byte(log)}
			r := &rereadLog{ctx: t.Context(), in: w, timed: timed}
			want := log
			if !timed {
				want = strings.ReplaceAll(log, stamp, "")
			}
			var got bytes.Buffer
			largest, p := 0, make([]byte, 1000)
			for {
				n, err := r.Read(p)
				got.Write(p[:n])
				largest = max(largest, r.rest.Cap())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if timed && got.Len() == len(p) && w.read > 4*rereadBuffer {
					t.Errorf("%s: %d bytes are read for the first %d", name, w.read, len(p))
				}
			}
			if largest > 4*rereadBuffer {
				t.Errorf("%s, times %t: it keeps %d bytes", name, timed, largest)
			}
			if got.String() != want {
				t.Errorf("%s, times %t: %d bytes, want %d", name, timed, got.Len(), len(want))
			}
			if w.open != 0 {
				t.Errorf("%s: %d readers are open after the end", name, w.open)
			}
		}
	}
}

// TestRereadLogLosesNothing verifies that a growing log is returned exactly once and in order.
// The log contains lines with equal times, lines longer than the buffer, and an incomplete last
// line.
func TestRereadLogLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(30) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // needs no cryptographic randomness
			w := &wholeLog{}
			r := &rereadLog{ctx: t.Context(), in: w, timed: seed%2 == 0}
			now, begun := rereadStart, false
			var want, got bytes.Buffer
			grow := func() {
				for range random.IntN(200) {
					if !begun {
						if random.IntN(4) == 0 {
							now = now.Add(time.Millisecond)
						}
						w.log = append(w.log, brig.LogTime(now)...)
						if r.timed {
							want.WriteString(brig.LogTime(now))
						}
					}
					size := random.IntN(40)
					if random.IntN(100) == 0 {
						size = random.IntN(3 * rereadBuffer)
					}
					text := strings.Repeat(string(rune('a'+random.IntN(26))), size)
					if begun = random.IntN(3) == 0; !begun {
						text += "\n"
					}
					w.log = append(w.log, text...)
					want.WriteString(text)
				}
			}
			p := make([]byte, 1+random.IntN(100_000))
			read := func(reads int) (ended bool) {
				for ; reads != 0; reads-- {
					n, err := r.Read(p)
					got.Write(p[:n])
					if errors.Is(err, io.EOF) {
						return true
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				return false
			}
			for range 10 {
				grow()
				if read(random.IntN(10)) {
					time.Sleep(time.Minute)
				}
			}
			r.complete() // possibly in the middle of a line
			if read(-1); got.String() != want.String() {
				t.Errorf("seed %d: %d bytes, want %d", seed, got.Len(), want.Len())
			}
			if w.open != 0 {
				t.Errorf("seed %d: %d readers are open after the end", seed, w.open)
			}
		}
	})
}

// TestRereadLogClosesItsReader verifies that no reader stays open after an error, or after a
// follower that was closed early.
func TestRereadLogClosesItsReader(t *testing.T) {
	broken := errors.New("the connection is broken")
	w := &wholeLog{log: []byte(strings.Repeat(brig.LogTime(rereadStart)+"\n", 10_000))}
	r := &rereadLog{ctx: t.Context(), in: w, timed: true}
	if _, err := r.Read(make([]byte, 10)); err != nil || w.open != 1 {
		t.Fatalf("%v, %d readers are open", err, w.open)
	}
	if err := r.Close(); err != nil || w.open != 0 {
		t.Errorf("%v, %d readers are open after Close", err, w.open)
	}
	w.fail = broken
	if _, err := io.ReadAll(&rereadLog{ctx: t.Context(), in: w, timed: true}); !errors.Is(err, broken) || w.open != 0 {
		t.Errorf("%v, %d readers are open after an error", err, w.open)
	}
}

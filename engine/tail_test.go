package engine

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// closeCounter is a reader that counts the calls of Close.
type closeCounter struct {
	io.Reader
	closed *int
}

func (c closeCounter) Close() error {
	*c.closed++
	return nil
}

func tailOf(t *testing.T, text string, n int) string {
	t.Helper()
	closed := 0
	open := func() io.ReadCloser { return closeCounter{strings.NewReader(text), &closed} }
	r, err := tailLines(t.Context(), open(), open(), n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if r.Close(); closed != 2 {
		t.Errorf("%d of 2 readers were closed", closed)
	}
	return string(b)
}

// TestTailLinesMatchesReference compares the tails of random texts with the results of a simple
// implementation.
func TestTailLinesMatchesReference(t *testing.T) {
	for range 500 {
		var b strings.Builder
		for range rand.IntN(9) {
			b.WriteString(strings.Repeat("x", []int{0, 1, 70 << 10}[rand.IntN(3)]) + "\n")
		}
		if rand.IntN(2) == 0 {
			b.WriteString("no end")
		}
		text, n := b.String(), rand.IntN(10)+1
		lines := strings.SplitAfter(text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		if want := strings.Join(lines[max(0, len(lines)-n):], ""); tailOf(t, text, n) != want {
			t.Fatalf("the last %d of %d lines are wrong", n, len(lines))
		}
	}
}

// TestTailWorkIsLinear checks that the work for a tail is linear, because a program can print a
// line for each byte, and a caller can request any number of lines.
func TestTailWorkIsLinear(t *testing.T) {
	const lines, n = 8 << 20, 4 << 20
	text := strings.Repeat("\n", lines)
	done := make(chan int, 1)
	go func() { done <- len(tailOf(t, text, n)) }()
	select {
	case got := <-done:
		if got != n {
			t.Errorf("%d lines, want %d", got, n)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it takes more than two minutes")
	}
}

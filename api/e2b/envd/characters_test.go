package envd

import (
	"slices"
	"testing"

	"github.com/brig-run/brig"
)

// TestCharacterWaitsItsOwnTime verifies that the end of one character's wait does not send
// the beginning of a later character.
func TestCharacterWaitsItsOwnTime(t *testing.T) {
	var sent []string
	var waits []func() error
	c := characters{
		maxEventSize: 100,
		send:         func(_ brig.From, data []byte) error { sent = append(sent, string(data)); return nil },
		afterWait:    func(f func() error) { waits = append(waits, f) },
	}
	add := func(from brig.From, data string) {
		t.Helper()
		if err := c.add(from, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		if !slices.Equal(sent, want) {
			t.Fatalf("sent %q, want %q", sent, want)
		}
	}
	add(brig.FromStdout, "a\xc3")
	add(brig.FromStdout, "\xbcb\xe2")
	add(brig.FromStderr, "\xf0")
	check("a", "üb")
	if len(waits) != 3 {
		t.Fatalf("%d waits, want 3", len(waits))
	}
	_ = waits[0]()
	check("a", "üb")
	_ = waits[1]()
	check("a", "üb", "\xe2")
	_ = waits[1]()
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	check("a", "üb", "\xe2", "\xf0")
	_ = waits[2]()
	check("a", "üb", "\xe2", "\xf0")
}

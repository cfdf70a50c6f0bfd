// Package attack records attacks. A test records each attack that it tried, whether the attack
// succeeded, and which controls detected it. Many test binaries append to one file, and Report
// formats the file as a table.
package attack

import (
	"encoding/json"
	"fmt"
	"os"
)

// Env names the environment variable with the path of the record file. If it is
// unset, the package records no entries.
const Env = "BRIG_ATTACK"

// Entry is one line of the record. It describes a case, or a mutant if Off is
// not empty.
type Entry struct {
	ID   string `json:"id"`            // an ID in the Catalogue
	What string `json:"what"`          // the attack
	Off  string `json:"off,omitempty"` // the protection that was disabled
	// Begun marks the beginning of a case. A result or a skip follows, unless the test hangs or
	// crashes.
	Begun   bool `json:"begun,omitempty"`
	Skipped bool `json:"skipped,omitempty"`
	// Bad marks a case that escaped or a mutant that the test did not detect.
	Bad bool `json:"bad,omitempty"`
}

// T is the subset of testing.T that the package uses.
type T interface {
	Cleanup(func())
	Failed() bool
	Skipped() bool
}

// Case records a test as an attack when the test ends. A test that fails or does not end counts
// as an escape, regardless of the cause.
func Case(t T, id, what string) {
	write(Entry{ID: id, What: what, Begun: true})
	t.Cleanup(func() {
		write(Entry{ID: id, What: what, Skipped: t.Skipped(), Bad: t.Failed()})
	})
}

// RecordCase records one of several attacks in a test.
func RecordCase(id, what string, escaped bool) { write(Entry{ID: id, What: what, Bad: escaped}) }

// Mutant records a test as the control of an attack when the test ends. The
// control disables the protection named by off, so that the attack succeeds,
// and must detect the attack. A failed test counts as undetected.
func Mutant(t T, id, what, off string) {
	t.Cleanup(func() {
		if !t.Skipped() {
			write(Entry{ID: id, What: what, Off: off, Bad: t.Failed()})
		}
	})
}

// RecordMutant records one of several controls in a test.
func RecordMutant(id, what, off string, seen bool) {
	write(Entry{ID: id, What: what, Off: off, Bad: !seen})
}

// write appends one line. Lines of concurrent processes do not interleave,
// because each line is a single write in append mode. write panics on an error,
// so that a failed write is noticed.
func write(e Entry) {
	name := os.Getenv(Env) //nolint:forbidigo // only in tests; no server runs this code
	if name == "" {
		return
	}
	if r := []rune(e.What); len(r) > 300 {
		e.What = string(r[:300])
	}
	b, err := json.Marshal(e)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			_, err = f.Write(append(b, '\n'))
			if cerr := f.Close(); err == nil {
				err = cerr
			}
		}
	}
	if err != nil {
		panic(fmt.Sprintf("the book of attacks: %v", err)) //nolint:forbidigo // a lost record must not look like a failed attack
	}
}

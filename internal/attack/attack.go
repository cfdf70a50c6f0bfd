// Package attack keeps the book of attacks: a test writes down what it tried
// and whether it got out, and which protection it has seen fail. Many test
// binaries write into one file, of which Report makes one table.
package attack

import (
	"encoding/json"
	"fmt"
	"os"
)

// Env names the file that is written to. Without it nothing is.
const Env = "BRIG_ATTACK"

// Entry is a line of the book. It is a case, or a mutant if Off is not empty.
type Entry struct {
	ID   string `json:"id"`            // of the Catalogue
	What string `json:"what"`          // was tried
	Off  string `json:"off,omitempty"` // what did not stand in the way
	// Bad is a case that escaped, or a mutant that was not seen.
	Bad bool `json:"bad,omitempty"`
}

// T is what the book needs of a test.
type T interface {
	Cleanup(func())
	Failed() bool
	Skipped() bool
}

// Case writes down, when the test has ended, that it was an attack. One that
// fails counts as escaped, whatever failed.
func Case(t T, id, what string) {
	t.Cleanup(func() {
		if !t.Skipped() {
			write(Entry{ID: id, What: what, Bad: t.Failed()})
		}
	})
}

// Tried writes down one of several attacks that a test makes.
func Tried(id, what string, escaped bool) { write(Entry{ID: id, What: what, Bad: escaped}) }

// Mutant writes down, when the test has ended, that it was the control of an
// attack: without what is named by off it succeeds, and is seen to. A test that
// fails has not seen it.
func Mutant(t T, id, what, off string) {
	t.Cleanup(func() {
		if !t.Skipped() {
			write(Entry{ID: id, What: what, Off: off, Bad: t.Failed()})
		}
	})
}

// Seen writes down one of several controls that a test makes.
func Seen(id, what, off string, seen bool) { write(Entry{ID: id, What: what, Off: off, Bad: !seen}) }

// write adds a line. Lines of several processes do not mix: each is one write
// to the end of the file. What cannot be written down must not go unnoticed.
func write(e Entry) {
	name := os.Getenv(Env) //nolint:forbidigo // of tests; no server comes here
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
		panic(fmt.Sprintf("the book of attacks: %v", err)) //nolint:forbidigo // an attack that is lost must not look like one that failed
	}
}

package envd

import (
	"bytes"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

// maxCharacterWait is how long the first bytes of a character are held until the remaining bytes
// arrive. In output that is not UTF-8, they never arrive.
const maxCharacterWait = time.Second

// characters divides the output of a process into events that end at the ends of
// characters, because older clients decode each event by itself. Output that is not UTF-8
// passes unchanged. Its caller serializes the calls.
type characters struct {
	maxEventSize int // bytes of an event
	send         func(from brig.From, data []byte) error
	// afterWait calls its argument after maxCharacterWait, serialized with the other calls.
	afterWait func(func() error)

	held map[brig.From]*heldBytes
}

// heldBytes is the beginning of a character.
type heldBytes struct{ data []byte }

// add sends output, except the beginning of a character at its end.
func (c *characters) add(from brig.From, data []byte) error {
	if held := c.held[from]; held != nil {
		data = append(held.data, data...)
		delete(c.held, from)
	}
	for len(data) > 0 {
		n := min(len(data), c.maxEventSize)
		if cut := n - httpapi.IncompleteBytes(data[:n]); cut > 0 {
			n = cut
		} else if n == len(data) { // only the beginning of a character
			return c.hold(from, data)
		}
		if err := c.send(from, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (c *characters) hold(from brig.From, data []byte) error {
	if c.held == nil {
		c.held = map[brig.From]*heldBytes{}
	}
	h := &heldBytes{bytes.Clone(data)}
	c.held[from] = h
	c.afterWait(func() error {
		if c.held[from] != h {
			return nil // its rest has arrived; another character may wait now
		}
		return c.flushStream(from)
	})
	return nil
}

// flush sends the incomplete character that is still buffered.
func (c *characters) flush() error {
	for from := range c.held {
		if err := c.flushStream(from); err != nil {
			return err
		}
	}
	return nil
}

func (c *characters) flushStream(from brig.From) error {
	held := c.held[from]
	delete(c.held, from)
	return c.send(from, held.data)
}

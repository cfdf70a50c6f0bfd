package mcp

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// maxText bounds what a result shows of one stream: models read it. The
// sandbox's log has more.
const maxText = 64 * brig.KiB

// keep is a writer that keeps the head and the tail of what is written.
type keep struct {
	head, tail []byte
	total      int64
}

// Write implements io.Writer.
func (k *keep) Write(b []byte) (int, error) {
	n := len(b)
	k.total += int64(n)
	room := min(maxText/2-len(k.head), n)
	k.head, b = append(k.head, b[:room]...), b[room:]
	k.tail = append(k.tail, b...)
	if cut := len(k.tail) - maxText/2; cut > 0 {
		k.tail = append(k.tail[:0], k.tail[cut:]...)
	}
	return n, nil
}

// text is what was kept, as an Output is shown.
func (k *keep) text() (string, bool) {
	return show(brig.Output{Head: k.head, Tail: k.tail, Total: k.total})
}

// show is what a result says of a stream, and whether something is missing.
func show(o brig.Output) (string, bool) {
	k := keep{}
	if !o.Truncated() && len(o.Head)+len(o.Tail) <= maxText {
		return plain(append(o.Head[:len(o.Head):len(o.Head)], o.Tail...)), false
	}
	// The gap of an output that was cut before is where the head ends.
	k.head, k.tail = o.Head, o.Tail
	if len(k.head) > maxText/2 {
		if !o.Truncated() {
			k.tail = append(k.head[maxText/2:len(k.head):len(k.head)], k.tail...)
		}
		k.head = k.head[:maxText/2]
	}
	if cut := len(k.tail) - maxText/2; cut > 0 {
		k.tail = k.tail[cut:]
	}
	missing := o.Total - int64(len(k.head)+len(k.tail))
	return fmt.Sprintf("%s\n[%d bytes are left out]\n%s", plain(k.head), missing, plain(k.tail)), true
}

// plain is text, whatever a program has written.
func plain(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// seconds is a time that a caller gives.
func seconds(field string, s float64) (time.Duration, error) {
	const most = float64(365 * 24 * time.Hour / time.Second)
	if s < 0 || s > most {
		return 0, brig.InvalidField(field, "%g is out of bounds", s).WithHint("give seconds, or leave it out")
	}
	return time.Duration(s * float64(time.Second)), nil
}

// both writes to a keep and tells it.
type both struct {
	keep *keep
	told *progress
}

// Write implements io.Writer.
func (b both) Write(p []byte) (int, error) {
	if _, err := b.told.Write(p); err != nil {
		return 0, err
	}
	return b.keep.Write(p)
}

// input is what a program reads, if it is given something.
func input(text string) io.Reader {
	if text == "" {
		return nil
	}
	return strings.NewReader(text)
}

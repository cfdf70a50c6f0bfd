package mcp

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// maxText limits the text of one stream in a result, because models read it.
// The sandbox's log contains more of the output.
const maxText = 64 * brig.KiB

// headTailWriter is a writer that keeps the beginning and the end of its input.
type headTailWriter struct {
	head, tail []byte
	total      int64
}

// Write implements io.Writer.
func (k *headTailWriter) Write(b []byte) (int, error) {
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

// text returns the retained text in the format of outputText.
func (k *headTailWriter) text() (string, bool) {
	return outputText(brig.Output{Head: k.head, Tail: k.tail, Total: k.total})
}

// outputText returns the text of a stream for a result and reports whether a
// part is missing.
func outputText(o brig.Output) (string, bool) {
	k := headTailWriter{}
	if !o.Truncated() && len(o.Head)+len(o.Tail) <= maxText {
		return toValidUTF8(append(o.Head[:len(o.Head):len(o.Head)], o.Tail...)), false
	}
	// If the output was already truncated, its gap is at the end of the head.
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
	return fmt.Sprintf("%s\n[%d bytes are left out]\n%s", toValidUTF8(k.head), missing, toValidUTF8(k.tail)), true
}

// toValidUTF8 converts a program's output to valid UTF-8.
func toValidUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// parseSeconds converts a number of seconds from the caller to a duration.
func parseSeconds(field string, s float64) (time.Duration, error) {
	const maximum = float64(365 * 24 * time.Hour / time.Second)
	if s < 0 || s > maximum {
		return 0, brig.InvalidField(field, "%g is out of bounds", s).WithHint("give seconds, or leave it out")
	}
	return time.Duration(s * float64(time.Second)), nil
}

// progressWriter writes to a headTailWriter and reports the text as progress.
type progressWriter struct {
	headTailWriter *headTailWriter
	progress       *progress
}

// Write implements io.Writer.
func (b progressWriter) Write(p []byte) (int, error) {
	if _, err := b.progress.Write(p); err != nil {
		return 0, err
	}
	return b.headTailWriter.Write(p)
}

// stdinReader returns the standard input of a program, or nil if text is empty.
func stdinReader(text string) io.Reader {
	if text == "" {
		return nil
	}
	return strings.NewReader(text)
}

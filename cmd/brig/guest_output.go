package main

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// guestOutput returns the writer for a guest's output. On a terminal, it filters control sequences.
// Programs in a sandbox may color their text, but may not write to the clipboard, move the cursor
// or trigger responses that appear as keyboard input. `brig sandbox shell` is for programs that
// need the terminal.
func (c *cli) guestOutput(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &terminalFilter{to: w}
}

// finish writes the bytes that a filter still buffers, for example the first
// bytes of an incomplete character.
func finish(w io.Writer) error {
	if f, ok := w.(*terminalFilter); ok {
		return f.flush()
	}
	return nil
}

// maxPending bounds an incomplete sequence that may become a color.
const maxPending = 32

// terminalFilter passes text, line breaks, tabs, carriage returns and colors. It replaces other
// control characters, and characters that reverse the text direction, with U+FFFD.
type terminalFilter struct {
	to   io.Writer
	held []byte // the beginning of a character or sequence
}

// Write implements io.Writer.
func (f *terminalFilter) Write(p []byte) (int, error) {
	f.held = append(f.held, p...)
	if err := f.emit(false); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *terminalFilter) flush() error { return f.emit(true) }

// emit writes the held bytes. If last is set, it also writes incomplete characters and sequences.
func (f *terminalFilter) emit(last bool) error {
	var out bytes.Buffer
	b := f.held
	for len(b) > 0 {
		if b[0] == 0x1b {
			n, whole := colorSequence(b)
			if n > 0 && whole {
				out.Write(b[:n])
				b = b[n:]
				continue
			}
			if n > 0 && !last {
				break // it may become a color sequence
			}
			out.WriteRune(utf8.RuneError)
			b = b[1:]
			continue
		}
		if !utf8.FullRune(b) && !last {
			break
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		if r != '\n' && r != '\t' && r != '\r' && isUnsafeRune(r) {
			r = utf8.RuneError
		}
		out.WriteRune(r)
	}
	f.held = append([]byte(nil), b...)
	_, err := f.to.Write(out.Bytes())
	return err
}

// colorSequence returns the length of the SGR sequence (ESC [ 0-9 ; : … m) at the beginning of b,
// which sets colors and other text attributes, and whether it is complete. The length is 0 for any
// other sequence.
func colorSequence(b []byte) (n int, whole bool) {
	for i, c := range b {
		switch {
		case i >= maxPending:
			return 0, false
		case i == 0:
		case i == 1 && c == '[':
		case i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm':
			return i + 1, true
		default:
			return 0, false
		}
	}
	return len(b), false
}

// isUnsafeRune reports whether a character controls a terminal, or reverses the
// direction of text.
func isUnsafeRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// escapeJSON escapes the characters of a JSON document that a terminal would
// interpret. They occur only in strings, where an escape has the same meaning.
func escapeJSON(b []byte) []byte {
	if !bytes.ContainsFunc(b, func(r rune) bool { return r != '\n' && isUnsafeRune(r) }) {
		return b
	}
	const hex = "0123456789abcdef"
	var out bytes.Buffer
	for _, r := range string(b) {
		if r == '\n' || !isUnsafeRune(r) {
			out.WriteRune(r)
			continue
		}
		out.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			out.WriteByte(hex[r>>shift&15])
		}
	}
	return out.Bytes()
}

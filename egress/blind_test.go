package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// guessed is the value that the guest tries to guess.
const guessed = "sk_live_51HqLyjWDarjtT1zdp7dcXYZ"

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// wrongGuess returns a guess of the given length that is wrong in every character.
func wrongGuess(length int) string {
	b := make([]byte, length)
	for i := range b {
		for b[i] = letters[rand.IntN(len(letters))]; b[i] == guessed[i%len(guessed)]; {
			b[i] = letters[rand.IntN(len(letters))]
		}
	}
	return string(b)
}

// tickReader is a source that returns one piece at each tick of its clock.
type tickReader struct {
	list       [][]byte
	ends       error
	beforeTick func() // called before each tick
}

func (s *tickReader) Read(p []byte) (int, error) {
	s.beforeTick()
	if len(s.list) == 0 {
		return 0, s.ends
	}
	n := copy(p, s.list[0])
	if s.list[0] = s.list[0][n:]; len(s.list[0]) == 0 {
		s.list = s.list[1:]
	}
	return n, nil
}

// readReleased returns how many bytes a reader has returned before each tick of its
// source and at its end, and the final error.
func readReleased(list [][]byte, ends error, over func(io.Reader) io.Reader) (log []int, text string) {
	var out bytes.Buffer
	src := &tickReader{list: list, ends: ends, beforeTick: func() { log = append(log, out.Len()) }}
	r := over(src)
	for b := make([]byte, 32<<10); ; {
		n, err := r.Read(b)
		out.Write(b[:n])
		if err != nil {
			return append(log, out.Len()), out.String() + err.Error()
		}
	}
}

// streams returns sample response bodies by encoding. Each contains guess.
func streams(guess string) map[string][][]byte {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, "<<"+guess+">>")
	z.Close()
	envelope := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
	}
	long := strings.Repeat(guess+" ", 3*holdLength/len(guess))
	cut := func(text string, at ...int) (list [][]byte) {
		for _, i := range at {
			list = append(list, []byte(text[:i]))
			text = text[i:]
		}
		return append(list, []byte(text))
	}
	ws := func(first byte, text string) []byte {
		if len(text) > 125 {
			return append(binary.BigEndian.AppendUint16([]byte{first, 126}, uint16(len(text))), text...)
		}
		return append([]byte{first, byte(len(text))}, text...)
	}
	var bytewise [][]byte
	for _, c := range []byte(guess) {
		bytewise = append(bytewise, []byte{c})
	}
	clip := guess[:min(len(guess), 120)]
	list := map[string][][]byte{
		"chunks":    cut("<<"+guess+">> and more", 2, len(guess)),
		"bytes":     bytewise,
		"long":      cut(long, 1000, holdLength, holdLength, 77),
		"events":    cut("data: x\n\ndata: "+guess+"\n\ndata: "+guess, 9, 6+len(guess), 2, 6),
		"lines":     cut(`{"a":1}`+"\n"+`{"b":"`+guess+`"}`+"\n"+guess, 8, 6+len(guess), 3),
		"envelopes": {envelope("one"), envelope(guess), envelope("x" + guess)[:7]},
		"ws":        {ws(0x81, "one"), ws(0x81, guess), ws(0x89, clip), ws(0x82, guess)[:7]},
		"ws-frames": {ws(0x01, guess), ws(0x89, "ping"), ws(0x00, guess), ws(0x80, ""), ws(0x01, guess)},
	}
	for i := 0; i < zipped.Len(); i += 7 {
		list["gzip"] = append(list["gzip"], zipped.Bytes()[i:min(i+7, zipped.Len())])
	}
	return list
}

// wrapperFor returns the function that wraps a stream of a kind in its reader.
func (s *search) wrapperFor(kind string) func(io.Reader) io.Reader {
	return func(src io.Reader) io.Reader {
		switch {
		case kind == "events":
			return s.newReader(src, &events{})
		case kind == "lines":
			return s.newReader(src, lines{})
		case kind == "envelopes":
			return s.newReader(src, &envelopes{})
		case strings.HasPrefix(kind, "ws"):
			return s.newFrames(src)
		}
		return s.newReader(src, nil)
	}
}

// The scrubber releases the same number of bytes at each tick for a partly
// right guess as for a wrong one. This holds for every form and stream,
// regardless of how the stream ends. TestSearchIgnoresPartsOfValues shows that neither
// guess matches the value.
func TestScrubberTimingIgnoresPartialGuesses(t *testing.T) {
	testenv.SkipWithRace(t, "one goroutine")
	s := newScrubber([]boundSecret{{Secret: key(), value: []byte(guessed)}, {Secret: key(), value: []byte("another-value-of-the-host")}}, nil).values
	cases := 0
	for length := 1; length < len(guessed); length += 6 {
		right, other := written(guessed[:length]), written(wrongGuess(length))
		for form := range right {
			if form == "itself" { // with another part of the value after the guess
				right[form], other[form] = guessed[:length]+" "+guessed[len(guessed)-length:], other[form]+" "+wrongGuess(length)
			}
			if len(right[form]) != len(other[form]) {
				continue // the escapes have different lengths
			}
			a, b := streams(right[form]), streams(other[form])
			for kind := range a {
				for _, ends := range []error{io.EOF, io.ErrUnexpectedEOF} {
					if kind == "gzip" { // the compressed bytes differ, so compare the decompressed output
						one, text := readReleased(a[kind], ends, func(src io.Reader) io.Reader {
							return s.newReader(&decompressor{src: bufio.NewReader(src), gzip: true}, nil)
						})
						two, _ := readReleased(b[kind], ends, func(src io.Reader) io.Reader {
							return s.newReader(&decompressor{src: bufio.NewReader(src), gzip: true}, nil)
						})
						if one[len(one)-1] != two[len(two)-1] || one[max(0, len(one)-2)] != 0 {
							t.Errorf("gzip of %s: %v and %v, %.100q", form, one, two, text)
						}
						continue
					}
					one, text := readReleased(a[kind], ends, s.wrapperFor(kind))
					two, _ := readReleased(b[kind], ends, s.wrapperFor(kind))
					cases++
					if !slices.Equal(one, two) {
						t.Errorf("%s of %s, %d characters, %v: %v, but %v for a wrong guess: %.200q", kind, form, length, ends, one, two, text)
					}
					if kind == "chunks" && ends != io.EOF && one[len(one)-1] != 0 {
						t.Errorf("%s of %s: %d bytes of what broke", kind, form, one[len(one)-1])
					}
				}
			}
		}
	}
	t.Logf("%d streams of each", cases)
	attack.RecordCase("SEC-03", "guesses of prefixes, by what is held back", t.Failed())

	// As a control, a reader that holds back a possible start of the value is detected.
	old := newSwaps([]swap{{old: []byte(guessed), new: []byte(placeholder)}})
	for _, ends := range []error{io.EOF, io.ErrUnexpectedEOF} {
		over := func(src io.Reader) io.Reader { return old.newReader(src, nil) }
		one, _ := readReleased([][]byte{[]byte("<<" + guessed[:9]), []byte(">>")}, ends, over)
		two, _ := readReleased([][]byte{[]byte("<<" + wrongGuess(9)), []byte(">>")}, ends, over)
		if slices.Equal(one, two) {
			t.Errorf("the control holds back as much of either: %v", one)
		}
		attack.RecordMutant("SEC-03", "guesses of prefixes", fmt.Sprintf("holding back alike, %v", ends), !slices.Equal(one, two))
	}
}

// Bytes that can be released early are released early: a stream of a type that
// has boundaries keeps flowing.
func TestReleasableBytesAreNotHeldBack(t *testing.T) {
	s := newScrubber([]boundSecret{{Secret: key(), value: []byte(guessed)}}, nil).values
	a := streams(guessed[:9])
	for kind, want := range map[string][]int{
		"events": {0, 9, 9, 26, 26, 26}, "lines": {0, 8, 8, 26, 26}, "envelopes": {0, 8, 22, 22}, "ws": {0, 5, 16, 27, 27},
	} {
		if log, text := readReleased(a[kind], io.ErrUnexpectedEOF, s.wrapperFor(kind)); !slices.Equal(log[:len(log)-1], want) {
			t.Errorf("%s: %v, want %v: %q", kind, log, want, text)
		}
	}
}

package rest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// FuzzInput: any body of standard input is read to its end or refused as the
// caller's fault, and never hangs.
func FuzzInput(f *testing.F) {
	for _, s := range []string{
		"{\"stdin\":\"a\"}\n{\"stdin_b64\":\"YQ==\"}\n\n{\"close_stdin\":true}\n", "{\"stdin\":\"a\"}", "{", "\n\n", "[]\n",
		"{\"close_stdin\":true}\n{\"stdin\":\"late\"}\n", "{\"stdin\":\"a\",\"stdin_b64\":\"YQ==\"}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pr, pw := io.Pipe()
		read := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, pr)
			read <- err
		}()
		err := lines{bufio.NewReader(bytes.NewReader(data))}.feed(pw)
		if rerr := <-read; (err == nil) != (rerr == nil) && !bytes.Contains(data, []byte("close_stdin")) {
			t.Errorf("feed said %v, its reader got %v", err, rerr)
		}
		if err != nil && brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("feed(%q) = %v", data, err)
		}
	})
}

func TestInputLineIsBounded(t *testing.T) {
	l := lines{bufio.NewReader(strings.NewReader(strings.Repeat("x", mostLine+1)))}
	if _, err := l.next(mostLine); brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("a line of %d bytes: %v", mostLine+1, err)
	}
	if _, err := (lines{bufio.NewReader(strings.NewReader(" \n\n"))}).next(mostLine); !errors.Is(err, io.EOF) {
		t.Errorf("empty lines: %v", err)
	}
}

// FuzzIncomplete: what is held back is the beginning of a character, and a
// text cut anywhere keeps all its characters.
func FuzzIncomplete(f *testing.F) {
	f.Add([]byte("caf\xc3"))
	f.Add([]byte("\xf0\x9f\x98"))
	f.Add([]byte("\xff\xfe"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := incomplete(data)
		if n < 0 || n > 3 || n > len(data) {
			t.Fatalf("incomplete(%q) = %d", data, n)
		}
		if utf8.Valid(data) && n != 0 {
			t.Errorf("%q is whole, but %d bytes were held back", data, n)
		}
		if held := data[len(data)-n:]; n > 0 && utf8.FullRune(held) {
			t.Errorf("%q is held back of %q", held, data)
		}
	})
}

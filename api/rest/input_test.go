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
	"github.com/brig-run/brig/api/httpapi"
)

// FuzzInput checks that any standard input is either read to its end or
// rejected as a client error, and that reading never blocks.
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
		err := (&lines{r: bufio.NewReader(bytes.NewReader(data))}).copyTo(pw)
		if rerr := <-read; (err == nil) != (rerr == nil) && !bytes.Contains(data, []byte("close_stdin")) {
			t.Errorf("feed said %v, its reader got %v", err, rerr)
		}
		if err != nil && brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("feed(%q) = %v", data, err)
		}
	})
}

func TestInputLineLimit(t *testing.T) {
	l := lines{r: bufio.NewReader(strings.NewReader(strings.Repeat("x", maxLine+1)))}
	if _, err := l.next(maxLine); brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("a line of %d bytes: %v", maxLine+1, err)
	}
	if _, err := (&lines{r: bufio.NewReader(strings.NewReader(" \n\n"))}).next(maxLine); !errors.Is(err, io.EOF) {
		t.Errorf("empty lines: %v", err)
	}
}

// FuzzIncomplete checks that only the beginning of a character is held back,
// and that text keeps all its characters wherever it is split.
func FuzzIncomplete(f *testing.F) {
	f.Add([]byte("caf\xc3"))
	f.Add([]byte("\xf0\x9f\x98"))
	f.Add([]byte("\xff\xfe"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := httpapi.IncompleteBytes(data)
		if n < 0 || n > 3 || n > len(data) {
			t.Fatalf("incomplete(%q) = %d", data, n)
		}
		if utf8.Valid(data) && n != 0 {
			t.Errorf("%q is whole, but %d bytes were held back", data, n)
		}
		if pending := data[len(data)-n:]; n > 0 && utf8.FullRune(pending) {
			t.Errorf("%q is held back of %q", pending, data)
		}
	})
}

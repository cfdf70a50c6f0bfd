package egress

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// naiveSwap makes the same replacements as swaps on a complete text. It is the
// oracle.
func naiveSwap(list []swap, text []byte) []byte {
	var out []byte
next:
	for i := 0; i < len(text); {
		best := -1
		for j, w := range list {
			if len(w.old) > 0 && !bytes.Equal(w.old, w.new) && bytes.HasPrefix(text[i:], w.old) &&
				(best < 0 || len(w.old) > len(list[best].old)) {
				best = j
			}
		}
		if best >= 0 {
			out = append(out, list[best].new...)
			i += len(list[best].old)
			continue next
		}
		out = append(out, text[i])
		i++
	}
	return out
}

// pieces reads text in pieces of the given sizes, which it repeats.
type pieces struct {
	text  []byte
	sizes []byte
	i     int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	size := 1
	if len(p.sizes) > 0 {
		size += int(p.sizes[p.i%len(p.sizes)])
		p.i++
	}
	n := copy(b, p.text[:min(size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func TestSwapReplacesPlaceholderAcrossReads(t *testing.T) {
	for _, c := range []struct{ name, from, to, text, want string }{
		{"alone", "KEY", "value", "KEY", "value"},
		{"between", "KEY", "v", "aKEYbKEYKEYc", "avbvvc"},
		{"nearly", "KEY", "v", "KEKEKEYKE", "KEKEvKE"},
		{"begins again in itself", "aab", "X", "aaaab", "aaX"},
		{"none", "KEY", "v", "nothing here", "nothing here"},
		{"empty", "KEY", "v", "", ""},
		{"longer", "K", strings.Repeat("v", 100), "KK", strings.Repeat("v", 200)},
	} {
		s := newSwaps([]swap{{old: []byte(c.from), new: []byte(c.to)}})
		for _, r := range []io.Reader{
			strings.NewReader(c.text),
			iotest.OneByteReader(strings.NewReader(c.text)),
			iotest.DataErrReader(strings.NewReader(c.text)),
			iotest.HalfReader(strings.NewReader(c.text)),
		} {
			got, err := io.ReadAll(s.newReader(r, nil))
			if err != nil || string(got) != c.want {
				t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
			}
		}
	}
}

func TestSwapPrefersLongestPlaceholder(t *testing.T) {
	list := []swap{{old: []byte("ab"), new: []byte("1")}, {old: []byte("abcd"), new: []byte("2")}, {old: []byte("bc"), new: []byte("3")}}
	got, err := io.ReadAll(newSwaps(list).newReader(iotest.OneByteReader(strings.NewReader("abcd abce bcd ab")), nil))
	if err != nil || string(got) != "2 1ce 3d 1" {
		t.Errorf("%q, %v", got, err)
	}
}

// Bytes that cannot be part of a placeholder are not held back.
func TestSwapForwardsOtherBytesAtOnce(t *testing.T) {
	in, feed := io.Pipe()
	texts := make(chan string, 9)
	defer close(texts)
	go func() {
		for text := range texts {
			feed.Write([]byte(text))
		}
	}()
	r := newSwaps([]swap{{old: []byte("SECRET"), new: []byte("x")}}).newReader(in, nil)
	for _, c := range []struct{ in, out string }{
		{"data: 1\n\n", "data: 1\n\n"}, {"data: SEC", "data: "}, {"OND", "SECOND"}, {"SECRE", ""}, {"T!", "x!"},
	} {
		texts <- c.in
		if c.out == "" {
			continue // the next iteration reads the rest
		}
		got := make([]byte, len(c.out))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != c.out {
			t.Fatalf("after %q came %q, %v; want %q", c.in, got, err, c.out)
		}
	}
}

// A truncated stream does not reveal the start of a value.
func TestSwapOfTruncatedStreamRevealsNoValue(t *testing.T) {
	s := newSwaps([]swap{{old: []byte("SECRET"), new: []byte("x")}})
	got, err := io.ReadAll(s.newReader(io.MultiReader(strings.NewReader("aSECRE"), iotest.ErrReader(io.ErrUnexpectedEOF)), nil))
	if err != io.ErrUnexpectedEOF || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzSwap(f *testing.F) {
	f.Add([]byte("KEY"), []byte("value"), []byte("KE"), []byte("aKEYb KEKEY"), []byte{0})
	f.Add([]byte("aab"), []byte(""), []byte("aaa"), []byte("aaaaabaab"), []byte{1, 0, 3})
	f.Add([]byte{0}, []byte{0, 0}, []byte{0, 1}, []byte{0, 0, 1, 0}, []byte{})
	f.Fuzz(func(t *testing.T, one, with, two, text, sizes []byte) {
		list := []swap{{old: one, new: with, name: "one"}, {old: two, new: []byte("<2>"), name: "two"}}
		if bytes.Equal(one, two) {
			list = list[:1]
		}
		want := naiveSwap(list, text)
		got, err := io.ReadAll(newSwaps(list).newReader(&pieces{text: text, sizes: sizes}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q in pieces of %v is %q, want %q", text, sizes, got, want)
		}
	})
}

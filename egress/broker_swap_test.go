package egress

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/brig-run/brig"
)

// plainly replaces as swaps does, without regard to streams: the oracle.
func plainly(list []swap, text []byte) []byte {
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

// pieces reads text in pieces of the given sizes, over and over.
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

func TestSwapOverEdges(t *testing.T) {
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
			got, err := io.ReadAll(s.reader(r, nil))
			if err != nil || string(got) != c.want {
				t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
			}
		}
	}
}

func TestSwapLongestCounts(t *testing.T) {
	list := []swap{{old: []byte("ab"), new: []byte("1")}, {old: []byte("abcd"), new: []byte("2")}, {old: []byte("bc"), new: []byte("3")}}
	got, err := io.ReadAll(newSwaps(list).reader(iotest.OneByteReader(strings.NewReader("abcd abce bcd ab")), nil))
	if err != nil || string(got) != "2 1ce 3d 1" {
		t.Errorf("%q, %v", got, err)
	}
}

// What cannot be part of something to replace is not held back.
func TestSwapHoldsNothingBack(t *testing.T) {
	in, feed := io.Pipe()
	texts := make(chan string, 9)
	defer close(texts)
	go func() {
		for text := range texts {
			feed.Write([]byte(text))
		}
	}()
	r := newSwaps([]swap{{old: []byte("SECRET"), new: []byte("x")}}).reader(in, nil)
	for _, c := range []struct{ in, out string }{
		{"data: 1\n\n", "data: 1\n\n"}, {"data: SEC", "data: "}, {"OND", "SECOND"}, {"SECRE", ""}, {"T!", "x!"},
	} {
		texts <- c.in
		if c.out == "" {
			continue // the next step sees it
		}
		got := make([]byte, len(c.out))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != c.out {
			t.Fatalf("after %q came %q, %v; want %q", c.in, got, err, c.out)
		}
	}
}

// A stream that breaks does not give away how a value begins.
func TestSwapBrokenStream(t *testing.T) {
	s := newSwaps([]swap{{old: []byte("SECRET"), new: []byte("x")}})
	got, err := io.ReadAll(s.reader(io.MultiReader(strings.NewReader("aSECRE"), iotest.ErrReader(io.ErrUnexpectedEOF)), nil))
	if err != io.ErrUnexpectedEOF || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
}

// A value that repeats itself, and an answer that nearly is it, do not keep the
// server busy: what takes too much to search is not given out.
func TestSwapEffort(t *testing.T) {
	letter, later := strings.Repeat("a", brig.MaxSecret), "xyz"+strings.Repeat("0", brig.MaxSecret-3)
	for _, c := range []struct{ what, value, text string }{
		{"a letter", letter, letter[1:] + "!"},
		{"later in it", later, strings.Repeat("MDAw", 20_000)},
	} {
		begun := time.Now()
		list := newScrubber([]grant{{Secret: key(), value: []byte(c.value)}}, nil).values
		if got, err := io.ReadAll(list.reader(strings.NewReader(c.text), nil)); err != errEffort {
			t.Errorf("%s: %d bytes, %v", c.what, len(got), err)
		}
		h := http.Header{"X": {c.text}}
		(&exchange{scrub: &scrubber{values: list, names: newSwaps(nil)}}).scrubHeader(h)
		if took := time.Since(begun); len(h) > 0 || took > time.Minute {
			t.Errorf("%s: %d fields, after %s", c.what, len(h), took)
		}
	}
	// The control: the value itself is found, however it repeats itself.
	for _, v := range []string{letter[:1<<13], strings.Repeat("é", 1<<12)} {
		list := newScrubber([]grant{{Secret: key(), value: []byte(v)}}, nil).values
		for _, text := range []string{v, url.QueryEscape(v), base64.StdEncoding.EncodeToString([]byte(v))} {
			got, err := io.ReadAll(list.reader(strings.NewReader("<<"+text+">>"), nil))
			if err != nil || strings.Contains(string(got), text[:100]) || !strings.HasSuffix(string(got), ">>") {
				t.Errorf("%.20s: %d bytes, %.100q, %v", text, len(got), got, err)
			}
		}
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
		want := plainly(list, text)
		got, err := io.ReadAll(newSwaps(list).reader(&pieces{text: text, sizes: sizes}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q in pieces of %v is %q, want %q", text, sizes, got, want)
		}
	})
}

// FuzzForms: what is found of a value, however it is written, does not depend
// on the pieces in which it arrives.
func FuzzForms(f *testing.F) {
	for _, text := range []string{value, `\u0073k-live/%22q+1&quot;&lt;=C3=A9>&amp;`, "c2stbGl2ZS8i\r\ncSsxIjzDqT4m", "73 6b 2d 6c:69", "&", "%2", `\`} {
		f.Add([]byte(text), []byte{0, 3})
	}
	f.Fuzz(func(t *testing.T, text, sizes []byte) {
		s := newSwaps(forms(grant{Secret: key(), value: []byte(value)}))
		got, err := io.ReadAll(s.reader(&pieces{text: text, sizes: sizes}, nil))
		if want := s.text(string(text), nil); err != nil || string(got) != want {
			t.Errorf("%q in pieces %v: %q, %v; whole %q", text, sizes, got, err, want)
		}
	})
}

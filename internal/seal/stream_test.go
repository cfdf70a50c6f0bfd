package seal_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/brig-run/brig/internal/seal"
)

// These constants describe the layout of a sealed stream.
const (
	headerSize  = 42
	sealedChunk = 64<<10 + 16
)

func sealStream(t *testing.T, key, plain []byte, where ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := seal.NewWriter(&b, key, where...)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(plain, 10_000) {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a closed stream can be written")
	}
	return b.Bytes()
}

func openStream(key, sealed []byte, where ...string) ([]byte, error) {
	r, err := seal.NewReader(iotest.HalfReader(bytes.NewReader(sealed)), key, where...)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// TestStreamOpensOnlyAtItsLocation verifies that a stream of any length opens with its key at its
// location, and does not open at another location.
func TestStreamOpensOnlyAtItsLocation(t *testing.T) {
	key := seal.NewKey()
	for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000, 3 * 64 << 10} {
		plain := randomBytes(n)
		sealed := sealStream(t, key, plain, "save", "one")
		if got, err := openStream(key, sealed, "save", "one"); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: %d bytes, %v", n, len(got), err)
		}
		if n > 16 && bytes.Contains(sealed, plain[:16]) {
			t.Errorf("%d bytes: the stream contains plain text", n)
		}
		if again := sealStream(t, key, plain, "save", "one"); bytes.Equal(again, sealed) {
			t.Errorf("%d bytes are sealed in the same way twice", n)
		}
		if _, err := openStream(key, sealed, "save", "two"); !errors.Is(err, seal.ErrForged) {
			t.Errorf("%d bytes at another location: %v", n, err)
		}
		if _, err := openStream(seal.NewKey(), sealed, "save", "one"); !errors.Is(err, seal.ErrForged) {
			t.Errorf("%d bytes with another key: %v", n, err)
		}
	}
	if _, err := seal.NewWriter(io.Discard, key[1:]); err == nil {
		t.Error("a short key is accepted")
	}
}

// TestDamagedStreamIsDetected verifies that every modification of a stream is detected: changed
// bytes, and chunks that are reordered, repeated, omitted, truncated, or taken from another stream
// with the same key and location. Control: the unchanged stream opens.
func TestDamagedStreamIsDetected(t *testing.T) {
	key, plain := seal.NewKey(), randomBytes(4*64<<10+100)
	sealed, other := sealStream(t, key, plain, "a"), sealStream(t, key, plain, "a")
	chunk := func(b []byte, i int) []byte {
		return b[headerSize+i*sealedChunk : min(headerSize+(i+1)*sealedChunk, len(b))]
	}
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	head, c := sealed[:headerSize], [][]byte{}
	for i := range 5 {
		c = append(c, chunk(sealed, i))
	}
	if got, err := openStream(key, join(head, c[0], c[1], c[2], c[3], c[4]), "a"); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("control: %v", err)
	}
	for name, forged := range map[string][]byte{
		"empty":                 {},
		"the header alone":      head,
		"half a header":         head[:20],
		"exchanged":             join(head, c[1], c[0], c[2], c[3], c[4]),
		"repeated":              join(head, c[0], c[0], c[1], c[2], c[3], c[4]),
		"left out":              join(head, c[0], c[2], c[3], c[4]),
		"without the first":     join(head, c[1], c[2], c[3], c[4]),
		"cut after a chunk":     join(head, c[0], c[1], c[2], c[3]),
		"cut within a chunk":    sealed[:len(sealed)-30],
		"extended":              join(sealed, []byte{0}),
		"extended by a chunk":   join(sealed, c[0]),
		"the last in the midst": join(head, c[4], c[1], c[2], c[3], c[4]),
		"of another stream":     join(head, chunk(other, 0), c[1], c[2], c[3], c[4]),
		"with another header":   join(other[:headerSize], c[0], c[1], c[2], c[3], c[4]),
	} {
		got, err := openStream(key, forged, "a")
		if !errors.Is(err, seal.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.HasPrefix(plain, got) {
			t.Errorf("%s: it returned data that was never sealed", name)
		}
	}
	for _, offset := range []int{0, 9, 10, headerSize - 1, headerSize, headerSize + 70_000, len(sealed) - 1} {
		forged := bytes.Clone(sealed)
		forged[offset] ^= 1
		if _, err := openStream(key, forged, "a"); !errors.Is(err, seal.ErrForged) {
			t.Errorf("with byte %d changed: %v", offset, err)
		}
	}
	broken := errors.New("broken")
	r, err := seal.NewReader(io.MultiReader(bytes.NewReader(sealed[:headerSize+sealedChunk]), iotest.ErrReader(broken)), key, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, broken) {
		t.Errorf("an error of the disk: %v", err)
	}
}

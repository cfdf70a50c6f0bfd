package wire_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/brig-run/brig/guest/wire"
)

func TestFramesRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	payloads := [][]byte{nil, []byte("x"), bytes.Repeat([]byte("y"), wire.MaxPayload)}
	for i, p := range payloads {
		if err := wire.Write(&buf, wire.Type(i+1), p); err != nil {
			t.Fatal(err)
		}
	}
	r := wire.NewReader(&buf)
	for i, p := range payloads {
		f, err := r.Read()
		if err != nil || f.Type != wire.Type(i+1) || !bytes.Equal(f.Payload, p) {
			t.Fatalf("frame %d: type %d, %d bytes, %v", i, f.Type, len(f.Payload), err)
		}
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the last frame: %v, want EOF", err)
	}
}

func TestFramesAreBounded(t *testing.T) {
	if err := wire.Write(io.Discard, 1, make([]byte, wire.MaxPayload+1)); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("Write of too much: %v", err)
	}
	_, err := wire.NewReader(bytes.NewReader([]byte{1, 0xff, 0xff, 0xff, 0xff})).Read()
	if !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("Read of a 4 GiB length: %v", err)
	}
	_, err = wire.NewReader(bytes.NewReader([]byte{1, 0, 0, 0, 9, 'x'})).Read()
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Read of a cut frame: %v", err)
	}
}

// HeadTail returns the same result as a simple implementation, however the stream is split into
// writes.
func TestHeadTailMatchesReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		limit := rnd.IntN(40)
		h := wire.NewHeadTail(limit)
		var all []byte
		for range rnd.IntN(12) {
			p := make([]byte, rnd.IntN(30))
			for i := range p {
				p[i] = byte(rnd.Uint32())
			}
			all = append(all, p...)
			if n, err := h.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		headMax, tailMax := limit-limit/2, limit/2
		head := all[:min(headMax, len(all))]
		rest := all[len(head):]
		tail := rest[len(rest)-min(tailMax, len(rest)):]
		got := h.Output()
		if !bytes.Equal(got.Head, head) || !bytes.Equal(got.Tail, tail) || got.Total != int64(len(all)) {
			t.Fatalf("limit %d of %d bytes: got %d+%d, want %d+%d", limit, len(all), len(got.Head), len(got.Tail), len(head), len(tail))
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 1, 'x'})
	f.Add([]byte{255, 0, 16, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wire.NewReader(bytes.NewReader(b))
		for {
			fr, err := r.Read()
			if err != nil {
				return
			}
			if len(fr.Payload) > wire.MaxPayload {
				t.Fatalf("payload of %d bytes", len(fr.Payload))
			}
		}
	})
}

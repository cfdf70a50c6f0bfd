package wire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/brig-run/brig/guest/wire"
)

func TestPacketsRoundTrip(t *testing.T) {
	packets := [][]byte{{1}, bytes.Repeat([]byte("y"), wire.MaxPacket), []byte("xyz")}
	var stream []byte
	for _, p := range packets {
		stream = wire.AppendPacket(stream, p)
	}
	r, b := wire.NewPackets(bytes.NewReader(stream)), make([]byte, wire.MaxPacket)
	for i, p := range packets {
		if n, err := r.Read(b); err != nil || !bytes.Equal(b[:n], p) {
			t.Fatalf("packet %d: %d bytes, %v", i, n, err)
		}
	}
	if n, err := r.Read(b); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("after the last packet: %d bytes, %v", n, err)
	}
}

func TestPacketsRejectsInvalid(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		room         int
		want         error
	}{
		{"nothing", "", 10, io.EOF},
		{"no length", "\x00\x00x", 10, wire.ErrPacket},
		{"more than there is room for", "\x00\x0b01234567890", 10, wire.ErrPacket},
		{"half a length", "\x00", 10, io.ErrUnexpectedEOF},
		{"a length and nothing", "\x00\x02", 10, io.ErrUnexpectedEOF},
		{"half a packet", "\x00\x02x", 10, io.ErrUnexpectedEOF},
	} {
		n, err := wire.NewPackets(bytes.NewReader([]byte(c.stream))).Read(make([]byte, c.room))
		if n != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d bytes, %v, want %v", c.name, n, err, c.want)
		}
	}
}

// FuzzPackets checks that the reader returns the written packets in order, up to the first invalid
// byte.
func FuzzPackets(f *testing.F) {
	f.Add([]byte("\x00\x01x\x00\x02yz"), uint16(100))
	f.Add([]byte("\x00\x00"), uint16(0))
	f.Add([]byte("\xff\xff"), uint16(1500))
	f.Fuzz(func(t *testing.T, stream []byte, room uint16) {
		r, b := wire.NewPackets(bytes.NewReader(stream)), make([]byte, room)
		var encoded []byte
		for {
			n, err := r.Read(b)
			if err != nil {
				if n != 0 || errors.Is(err, io.EOF) && len(encoded) != len(stream) {
					t.Fatalf("%d bytes of %d, %v", len(encoded), len(stream), err)
				}
				return
			}
			if n == 0 {
				t.Fatal("a packet of no length")
			}
			if encoded = wire.AppendPacket(encoded, b[:n]); !bytes.HasPrefix(stream, encoded) {
				t.Fatalf("%x came of %x", encoded, stream)
			}
		}
	})
}

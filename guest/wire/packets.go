package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Uplink asks for a network interface. After the answer, the connection
// carries its packets both ways, each behind its length in two bytes, big
// endian. The end of the connection is the end of the interface.
type Uplink struct {
	Address string // with the length of its network's prefix
	Gateway string // which resolves names, too
	MTU     int
	// Authority is whom the sandbox shall trust besides those it trusts
	// already: certificates in PEM, or nothing.
	Authority []byte `json:",omitempty"`
}

// ResolverFile is what /etc/resolv.conf says where that address resolves names.
// There is no IPv6 to ask for.
func ResolverFile(resolver string) string {
	return "nameserver " + resolver + "\noptions timeout:5 attempts:2 no-aaaa\n"
}

// BundleFile is where most programs look for whom to trust, and AuthorityFile
// has an Uplink's Authority and nobody else.
const (
	BundleFile    = "/etc/ssl/certs/ca-certificates.crt"
	AuthorityFile = "/etc/ssl/certs/brig.pem"
)

// MaxPacket is the size of the largest packet, in bytes, and PacketHeader of
// what stands before each.
const (
	MaxPacket    = 1<<16 - 1
	PacketHeader = 2
)

// ErrPacket is returned for a packet of no length or of too much.
var ErrPacket = errors.New("no packet")

// PutPacketHeader writes the header of a packet of n bytes into b.
func PutPacketHeader(b []byte, n int) { binary.BigEndian.PutUint16(b, uint16(n)) }

// AppendPacket appends a packet as it is sent.
func AppendPacket(b, packet []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(packet)))
	return append(b, packet...)
}

// packetsRead is how much is read at once, in bytes.
const packetsRead = 128 << 10

// Packets reads packets, as many at once as there are.
type Packets struct{ r *bufio.Reader }

// NewPackets returns a reader of the packets on r.
func NewPackets(r io.Reader) *Packets {
	return &Packets{bufio.NewReaderSize(r, packetsRead)}
}

// Read reads the next packet into b and returns its length. It returns io.EOF
// between packets only. After another error nothing more can be read.
func (p *Packets) Read(b []byte) (int, error) {
	hdr, err := p.r.Peek(PacketHeader)
	if err != nil {
		if len(hdr) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	n := int(binary.BigEndian.Uint16(hdr))
	if n == 0 || n > len(b) {
		return 0, fmt.Errorf("read a packet of %d bytes: %w", n, ErrPacket)
	}
	if _, err := p.r.Discard(PacketHeader); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(p.r, b[:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	return n, nil
}

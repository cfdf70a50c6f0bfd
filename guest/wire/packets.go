package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Uplink creates a network interface. After the response, the connection
// carries the interface's packets in both directions. Each packet follows its
// length in two bytes, big endian. The interface ends with the connection.
type Uplink struct {
	Address string // including the prefix length
	Gateway string // also the DNS resolver
	MTU     int
	// Authority contains additional CA certificates for the sandbox, in PEM, or
	// is empty.
	Authority []byte `json:",omitempty"`
}

// ResolverFile returns the content of /etc/resolv.conf for a resolver. It
// disables queries for IPv6 addresses, because IPv6 is not supported.
func ResolverFile(resolver string) string {
	return "nameserver " + resolver + "\noptions timeout:5 attempts:2 no-aaaa\n"
}

// BundleFile is the CA bundle that most programs use. AuthorityFile contains
// only the Authority of an Uplink.
const (
	BundleFile    = "/etc/ssl/certs/ca-certificates.crt"
	AuthorityFile = "/etc/ssl/certs/brig.pem"
)

// MaxPacket is the maximum size of a packet, in bytes. PacketHeader is the size
// of the header before each packet.
const (
	MaxPacket    = 1<<16 - 1
	PacketHeader = 2
)

// ErrPacket is returned for a packet with an invalid length.
var ErrPacket = errors.New("no packet")

// PutPacketHeader writes the header of a packet of n bytes into b.
func PutPacketHeader(b []byte, n int) { binary.BigEndian.PutUint16(b, uint16(n)) }

// AppendPacket appends a packet with its header.
func AppendPacket(b, packet []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(packet)))
	return append(b, packet...)
}

// packetsRead is the size of the read buffer, in bytes.
const packetsRead = 128 << 10

// Packets reads all available packets.
type Packets struct{ r *bufio.Reader }

// NewPackets returns a reader of the packets on r.
func NewPackets(r io.Reader) *Packets {
	return &Packets{bufio.NewReaderSize(r, packetsRead)}
}

// Read reads the next packet into b and returns its length. It returns io.EOF
// only between packets. After any other error, no more packets can be read.
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

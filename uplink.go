package brig

import "net/netip"

// Addresses inside every sandbox, from a network that is nowhere in use
// (RFC 2544): all sandboxes have the same, and none can reach another's.
var (
	// UplinkNetwork is the sandbox's own address in its network; what names
	// resolve to inside is in that network, too.
	UplinkNetwork = netip.MustParsePrefix("198.18.0.2/15")
	// UplinkGateway is where packets go, and who resolves names.
	UplinkGateway = netip.MustParseAddr("198.18.0.1")
)

// UplinkMTU is the size of the largest packet. Nothing is sent in pieces over
// a wire, so it is as large as packets can be.
const UplinkMTU = 65535

// Uplink is the only way out of a machine: whole IP packets, one at a time, as
// its network interface sends and takes them. Who has it decides what becomes
// of them. Receive and Send may be called at the same time as each other.
//
// It ends when the machine does, when another takes its place and when it is
// closed: then every call returns an error. It does not end while the machine
// is frozen. Whoever has it closes it, however it ended.
type Uplink interface {
	// Receive reads the next packet that the machine sends into p, which has
	// room for UplinkMTU bytes. A guest may have made it: it need not be what
	// it looks like.
	Receive(p []byte) (int, error)
	// Send gives the machine a packet. It never waits: one that the machine
	// has no room for is lost.
	Send(p []byte) error
	// Close takes the interface from the machine. It may be called again.
	Close() error
}

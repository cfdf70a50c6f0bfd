package egress

import (
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/brig-run/brig"
)

// endpoint is the link endpoint of the network stack for an uplink.
type endpoint struct {
	link brig.Uplink

	mu   sync.RWMutex // guards the field below
	into stack.NetworkDispatcher
}

var _ stack.LinkEndpoint = (*endpoint)(nil)

// deliver passes a packet of the sandbox to the stack.
func (e *endpoint) deliver(p []byte) {
	e.mu.RLock()
	into := e.into
	e.mu.RUnlock()
	if into == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
	defer pkt.DecRef()
	into.DeliverNetworkPacket(header.IPv4ProtocolNumber, pkt)
}

// WritePackets implements stack.LinkWriter. It drops packets for which the
// sandbox has no buffer space, and TCP retransmits them.
func (e *endpoint) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range list.AsSlice() {
		view := pkt.ToView()
		err := e.link.Send(view.AsSlice())
		view.Release()
		if err != nil {
			return i, &tcpip.ErrClosedForSend{}
		}
	}
	return list.Len(), nil
}

// Attach implements stack.NetworkLinkEndpoint.
func (e *endpoint) Attach(into stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.into = into
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.into != nil
}

// MTU implements stack.NetworkLinkEndpoint.
func (e *endpoint) MTU() uint32 { return brig.UplinkMTU }

// SetMTU implements stack.NetworkLinkEndpoint.
func (e *endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.NetworkLinkEndpoint.
func (e *endpoint) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress implements stack.NetworkLinkEndpoint.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.NetworkLinkEndpoint.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities { return 0 }

// Wait implements stack.NetworkLinkEndpoint.
func (e *endpoint) Wait() {}

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.NetworkLinkEndpoint.
func (e *endpoint) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (e *endpoint) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close implements stack.NetworkLinkEndpoint.
func (e *endpoint) Close() {}

// SetOnCloseAction implements stack.NetworkLinkEndpoint.
func (e *endpoint) SetOnCloseAction(func()) {}

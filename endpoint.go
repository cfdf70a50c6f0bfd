package brig

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
)

// Endpoint is the URL of another service in an administrator's configuration.
type Endpoint struct {
	// Field is the configuration field with the URL.
	Field string
	URL   *url.URL
	// Private allows addresses of this host and of private networks, and plain HTTP
	// to such addresses.
	Private bool
}

// maxEndpoint is the maximum length of a service's URL.
const maxEndpoint = 2048

// ParseEndpoint parses the URL of a service. The default scheme is HTTP for
// "localhost" and HTTPS otherwise.
func ParseEndpoint(field, raw string, private bool) (*Endpoint, error) {
	raw = strings.TrimSpace(raw)
	if !strings.Contains(raw, "://") {
		scheme := "https://"
		if host, _, _ := strings.Cut(raw, ":"); host == "localhost" {
			scheme = "http://"
		}
		raw = scheme + raw
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > maxEndpoint || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return nil, InvalidField(field, "it is not an HTTP URL").WithHint("for example https://sandbox.example.com or http://localhost:9385")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, InvalidField(field, "the URL must not have a user, a query or a fragment").WithHint("give the scheme, the host, and a port and a path if there are any")
	case u.Scheme == "http" && !private:
		return nil, InvalidField(field, "plain HTTP is only for private networks").
			WithHint("use https, or set allow_private if the service is on this machine or in a private network")
	}
	e := &Endpoint{Field: field, URL: u, Private: private}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return e, e.CheckAddr(addr)
	}
	return e, nil
}

// CheckAddr returns an error if the server must not connect to an address that the
// endpoint's host resolved to.
func (e *Endpoint) CheckAddr(addr netip.Addr) error {
	private := IsPrivateAddress(addr)
	if net, special := SpecialNetwork(addr); special && !private {
		return InvalidField(e.Field, "%s is in %s, which has no services", addr, net).WithHint("use an address of a service")
	}
	switch {
	case private && !e.Private:
		return InvalidField(e.Field, "%s is an address of this machine or of a private network", addr).
			WithHint("set allow_private if the service is meant to be there")
	case !private && e.URL.Scheme == "http":
		return InvalidField(e.Field, "plain HTTP to %s would cross the internet", addr).WithHint("use https")
	}
	return nil
}

// CheckConfiguredAddr returns an error if the server must not connect to an address
// of a host that an operator configured by name without a setting for private
// addresses. It allows this host and private networks, but not the metadata
// addresses of clouds. It is an outbound.CheckFunc.
func CheckConfiguredAddr(_ string, addr netip.Addr) error {
	if net, special := SpecialNetwork(addr); special && !IsPrivateAddress(addr) {
		return Errorf(PolicyBlocked, "%s is in %s, which has no services", addr, net).WithHint("use an address of a service")
	}
	return nil
}

// CheckForeignAddr returns an error if the server must not connect to an address of
// a host that another service named. It allows only public addresses, so that
// no service can direct the server into the operator's networks.
func CheckForeignAddr(addr netip.Addr) error {
	if net, special := SpecialNetwork(addr); special {
		return Errorf(PolicyBlocked, "another service named a host at %s, which is in %s", addr, net).
			WithHint("have the service name a host with a public address")
	}
	return nil
}

// owned are the networks of this host and the networks that are never routed
// publicly. Link-local networks are excluded, because clouds serve their metadata
// there.
var owned = func() []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.FieldsSeq("127.0.0.0/8 ::1/128 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7") {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// metadata are the addresses within these networks at which clouds serve their
// metadata.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}

// IsPrivateAddress reports whether addr belongs to this host or to a private
// network.
func IsPrivateAddress(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, a := range metadata {
		if a == addr {
			return false
		}
	}
	for _, p := range owned {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// MaxVia bounds the length of a Via header, the list of servers that forwarded a
// call, in bytes.
const MaxVia = 1 << 10

type viaKey struct{}

// WithVia returns a context for a call that other servers forwarded. via is the
// value of the HTTP header Via.
func WithVia(ctx context.Context, via string) context.Context {
	return context.WithValue(ctx, viaKey{}, via)
}

// ViaFrom returns the value that WithVia stored, with server appended, in the
// format of a Via header.
func ViaFrom(ctx context.Context, server string) string {
	via, _ := ctx.Value(viaKey{}).(string)
	hop := "1.1 brig-" + server
	if via == "" {
		return hop
	}
	return via + ", " + hop
}

// IsForwardingLoop reports whether the server has already forwarded a call with this Via
// header, or too many servers have forwarded it.
func IsForwardingLoop(via, server string) bool {
	return len(via) > MaxVia || server != "" && strings.Contains(via+",", " brig-"+server+",")
}

package brig

import (
	"net/netip"
	"net/url"
	"strings"
)

// Endpoint is where another service is, as an administrator wrote it down.
type Endpoint struct {
	// Field is the configuration's that it is in.
	Field string
	URL   *url.URL
	// Private says that it may be on this machine or in a network of one's own;
	// only there it may be spoken with in plain HTTP.
	Private bool
}

// maxEndpoint is the longest URL of a service.
const maxEndpoint = 2048

// ParseEndpoint reads the URL of a service. Without a scheme it is HTTP for
// "localhost" and HTTPS for all else.
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
		return nil, InvalidField(field, "it is not a URL of HTTP").WithHint("for example https://sandbox.example.com or http://localhost:9385")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, InvalidField(field, "a URL with a user, a query or a fragment is none of a service").WithHint("give the scheme, the host, and a port and a path if there are any")
	case u.Scheme == "http" && !private:
		return nil, InvalidField(field, "plain HTTP is for one's own networks only").
			WithHint("use https, or set allow_private if the service is on this machine or in a network of your own")
	}
	e := &Endpoint{Field: field, URL: u, Private: private}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return e, e.Judge(addr)
	}
	return e, nil
}

// Judge says whether the address, which the endpoint's host turned out to have,
// may be connected to.
func (e *Endpoint) Judge(addr netip.Addr) error {
	own := PrivateAddress(addr)
	if net, special := SpecialNetwork(addr); special && !own {
		return InvalidField(e.Field, "%s is in %s, where no service is", addr, net).WithHint("use an address of a service")
	}
	switch {
	case own && !e.Private:
		return InvalidField(e.Field, "%s is an address of this machine or of a private network", addr).
			WithHint("set allow_private if the service is meant to be there")
	case !own && e.URL.Scheme == "http":
		return InvalidField(e.Field, "plain HTTP to %s would cross the internet", addr).WithHint("use https")
	}
	return nil
}

// owned are the networks that are somebody's own: this machine, and those that
// are never routed. Link-local ones, where clouds keep their metadata, are not
// among them.
var owned = func() []netip.Prefix {
	var out []netip.Prefix
	for s := range strings.FieldsSeq("127.0.0.0/8 ::1/128 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7") {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// metadata are addresses within such networks at which clouds have theirs.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}

// PrivateAddress reports whether addr is one of this machine or of a network of
// one's own.
func PrivateAddress(addr netip.Addr) bool {
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

package brig

import (
	"net/netip"
	"path"
	"slices"
	"strings"
)

// Egress says where a sandbox may connect to. The zero value is nowhere.
type Egress struct {
	// Rules are looked at in order, and the first that matches decides. What
	// none matches is denied; no rules deny everything.
	Rules []EgressRule
	// Bandwidth bounds each direction, in bytes per second. 0 is no bound.
	Bandwidth int64 `json:",omitempty"`
}

// EgressRule matches connections. It has either a Host or a CIDR.
//
// Hosts are judged by the name that the sandbox asked for; the addresses that
// it resolves to are judged again: those of private and other special networks
// are only reached where a rule with a CIDR within such a network allows it.
type EgressRule struct {
	// Deny turns the rule around.
	Deny bool `json:",omitempty"`
	// Host is a name ("api.example.com"), any name below one
	// ("*.example.com"), or any name ("*").
	Host string `json:",omitempty"`
	// CIDR is a network or an address ("192.0.2.0/24", "2001:db8::1").
	CIDR string `json:",omitempty"`
	// Ports are those that the rule is about; none is every port.
	Ports []int `json:",omitzero"`
	// Methods and Paths narrow a rule with a Host to HTTP requests; other
	// protocols do not match it then. A path that ends in "*" is a prefix.
	// To see them, TLS is ended by the proxy, whose authority the sandbox
	// trusts.
	Methods []string `json:",omitzero"`
	Paths   []string `json:",omitzero"`
}

// Request is what a rule may look at beyond the place that is asked for.
type Request struct{ Method, Path string }

// IsHTTP reports whether the rule is about HTTP requests only.
func (r *EgressRule) IsHTTP() bool { return len(r.Methods)+len(r.Paths) > 0 }

// Verdict is what rules say.
type Verdict int

// The verdicts.
const (
	Denied  Verdict = iota
	Allowed         // whatever is said on the connection
	Inspect         // it depends on the requests, which have to be looked at
)

// Named judges a connection to a name and port, before it is resolved, and
// says which rule decided; -1 is none. The name is canonical: lower case,
// without the dot at its end.
func (e *Egress) Named(host string, port int) (Verdict, int) {
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR != "" || !MatchHost(r.Host, host) || !r.onPort(port) {
			continue
		}
		switch {
		case r.IsHTTP():
			return Inspect, i
		case r.Deny:
			return Denied, i
		}
		return Allowed, i
	}
	return Denied, -1
}

// Asked judges a request to a name and port.
func (e *Egress) Asked(host string, port int, q Request) (Verdict, int) {
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR != "" || !MatchHost(r.Host, host) || !r.onPort(port) || !r.matchRequest(q) {
			continue
		}
		if r.Deny {
			return Denied, i
		}
		return Allowed, i
	}
	return Denied, -1
}

// Answers reports whether a name may be resolved: whether there is any port on
// which it is not denied.
func (e *Egress) Answers(host string) bool {
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR != "" || !MatchHost(r.Host, host) {
			continue
		}
		if !r.Deny {
			return true
		}
		if len(r.Ports) == 0 && !r.IsHTTP() {
			return false
		}
	}
	return false
}

// Numbered judges a connection to an address that the sandbox named itself.
func (e *Egress) Numbered(addr netip.Addr, port int) (Verdict, int) {
	addr = addr.Unmap()
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR == "" || !r.onPort(port) {
			continue
		}
		network, err := ParseNetwork(r.CIDR)
		if err != nil || !network.Contains(addr) {
			continue
		}
		if r.Deny {
			return Denied, i
		}
		if _, special := SpecialNetwork(addr); special && !InSpecialNetwork(network) {
			continue // it was not this network that the rule names
		}
		return Allowed, i
	}
	return Denied, -1
}

// Resolved judges an address that an allowed name has resolved to: public ones
// unless a rule denies them, special ones if a rule names them.
func (e *Egress) Resolved(addr netip.Addr, port int) (Verdict, int) {
	verdict, i := e.Numbered(addr, port)
	if i < 0 {
		if _, ok := SpecialNetwork(addr.Unmap()); !ok {
			return Allowed, -1
		}
	}
	return verdict, i
}

func (r *EgressRule) onPort(port int) bool {
	return len(r.Ports) == 0 || slices.Contains(r.Ports, port)
}

func (r *EgressRule) matchRequest(q Request) bool {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, q.Method) {
		return false
	}
	return len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(q.Path, prefix)
		}
		return q.Path == p
	})
}

// MatchHost reports whether a name is meant by a rule's host. Only whole labels
// match.
func MatchHost(pattern, host string) bool {
	if pattern == "*" {
		return true
	}
	if below, ok := strings.CutPrefix(pattern, "*"); ok { // ".example.com"
		return len(host) > len(below) && strings.HasSuffix(host, below)
	}
	return pattern == host
}

// ParseNetwork reads a network, or an address as a network of one.
func ParseNetwork(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// cleanPath reports whether a path in a rule is one that a request can have.
func cleanPath(p string) bool {
	prefix := strings.TrimSuffix(p, "*")
	return strings.HasPrefix(prefix, "/") && !strings.ContainsAny(prefix, "*?#%\\ ") &&
		(path.Clean(prefix) == prefix || path.Clean(prefix)+"/" == prefix)
}

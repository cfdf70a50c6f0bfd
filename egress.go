package brig

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Egress are the rules for a sandbox's outbound connections. The zero value
// blocks all of them.
type Egress struct {
	// Rules are evaluated in order, and the first match decides. A connection
	// that matches no rule is denied.
	Rules []EgressRule
	// Bandwidth bounds each direction, in bytes per second. 0 is unlimited; in
	// a change, SameBandwidth keeps the current value.
	Bandwidth int64 `json:",omitempty"`
	// Operator is true if an operator's key set these rules. The engine sets it
	// and ignores a caller's value. Only such rules, and those of the server's
	// configuration, can allow an address of the server's host.
	Operator bool `json:",omitempty"`
}

// SameBandwidth keeps the current bandwidth of a sandbox.
const SameBandwidth = -1

// EgressRule matches connections. It has either a Host or a CIDR.
//
// A rule with a Host matches the name that the sandbox requested. The resolved
// addresses are checked as well: addresses in private and other special networks
// are reachable only if a rule has a CIDR within such a network.
type EgressRule struct {
	// Deny makes the rule deny matching connections.
	Deny bool `json:",omitempty"`
	// Host is a name ("api.example.com"), any name below one
	// ("*.example.com"), or any name ("*").
	Host string `json:",omitempty"`
	// CIDR is a network or an address ("192.0.2.0/24", "2001:db8::1").
	CIDR string `json:",omitempty"`
	// Ports are the ports that the rule matches; empty matches every port.
	Ports []int `json:",omitzero"`
	// Methods and Paths limit a rule with a Host to HTTP requests; it then
	// matches no other protocol. A path that ends in "*" is a prefix. To read
	// requests, the proxy terminates TLS with an authority that the sandbox
	// trusts.
	Methods []string `json:",omitzero"`
	Paths   []string `json:",omitzero"`
}

// Request holds the parts of an HTTP request that a rule can match besides the
// host.
type Request struct{ Method, Path string }

// IsHTTP reports whether the rule matches only HTTP requests.
func (r *EgressRule) IsHTTP() bool { return len(r.Methods)+len(r.Paths) > 0 }

// Verdict is the result of the evaluation of rules.
type Verdict int

// Verdicts of egress rules.
const (
	Denied  Verdict = iota
	Allowed         // regardless of the traffic on the connection
	Inspect         // depends on the requests, which must be inspected
)

// Named evaluates a connection to a host name and port, before the name is
// resolved. It returns the index of the deciding rule; -1 means none. The name is
// canonical: lower case, without a trailing dot.
func (e *Egress) Named(host string, port int) (Verdict, int) {
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR != "" || !MatchHost(r.Host, host) || !r.matchesPort(port) {
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

// CheckRequest evaluates an HTTP request to the given host name and port.
func (e *Egress) CheckRequest(host string, port int, q Request) (Verdict, int) {
	// The path may be long and may be matched by many rules, so it is lowered only
	// once.
	lower := sync.OnceValue(func() string { return strings.ToLower(q.Path) })
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR != "" || !MatchHost(r.Host, host) || !r.matchesPort(port) || !r.matchRequest(q, lower) {
			continue
		}
		if r.Deny {
			return Denied, i
		}
		return Allowed, i
	}
	return Denied, -1
}

// Answers reports whether a name may be resolved: it must be allowed on at
// least one port.
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

// Numbered evaluates a connection to an address that the sandbox specified
// directly.
func (e *Egress) Numbered(addr netip.Addr, port int) (Verdict, int) {
	addr = addr.Unmap()
	for i := range e.Rules {
		r := &e.Rules[i]
		if r.CIDR == "" || !r.matchesPort(port) {
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
			continue // the rule does not explicitly include this network
		}
		return Allowed, i
	}
	return Denied, -1
}

// Resolved evaluates an address that an allowed name has resolved to. A public
// address is allowed unless a rule denies it. A special-purpose address is
// allowed only if a rule contains it.
func (e *Egress) Resolved(addr netip.Addr, port int) (Verdict, int) {
	verdict, i := e.Numbered(addr, port)
	if i < 0 {
		if _, ok := SpecialNetwork(addr.Unmap()); !ok {
			return Allowed, -1
		}
	}
	return verdict, i
}

func (r *EgressRule) matchesPort(port int) bool {
	return len(r.Ports) == 0 || slices.Contains(r.Ports, port)
}

// matchRequest reports whether the rule matches a request. lower returns the
// request's path in lower case.
func (r *EgressRule) matchRequest(q Request, lower func() string) bool {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, q.Method) {
		return false
	}
	return len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, func(p string) bool {
		if r.Deny { // some servers ignore case
			return matchLower(p, lower())
		}
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(q.Path, prefix)
		}
		return q.Path == p
	})
}

// matchLower reports whether a rule's path, in lower case, matches a path in lower
// case. It lowers the rule's path byte by byte, because most rules differ from the
// path in the first bytes.
func matchLower(rule, path string) bool {
	prefix, isPrefix := strings.CutSuffix(rule, "*")
	for i := range len(prefix) {
		c := prefix[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= utf8.RuneSelf:
			prefix = strings.ToLower(prefix)
			return path == prefix || isPrefix && strings.HasPrefix(path, prefix)
		}
		if i >= len(path) || path[i] != c {
			return false
		}
	}
	return isPrefix || len(path) == len(prefix)
}

// MatchHost reports whether a rule's host matches a name. Only whole labels
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

// ParseNetwork parses a network, or an address as a network of one address.
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

// isCleanPath reports whether a rule's path is in the canonical form of a request's
// path.
func isCleanPath(p string) bool {
	prefix := strings.TrimSuffix(p, "*")
	return strings.HasPrefix(prefix, "/") && !strings.ContainsAny(prefix, "*?#%\\ ") &&
		(path.Clean(prefix) == prefix || path.Clean(prefix)+"/" == prefix)
}

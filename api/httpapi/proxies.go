package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the networks of the reverse proxies in front of this server.
// Forwarding headers from other addresses are ignored.
type Proxies []netip.Prefix

// ParseProxies parses addresses and networks such as 10.0.0.2 and fd00::/64.
func ParseProxies(list []string) (Proxies, error) {
	var out Proxies
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, err
			}
			p = netip.PrefixFrom(a.Unmap().WithZone(""), a.Unmap().BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// forwardedHeaders are the headers in which proxies report their client's
// address, host and scheme. Handlers behind Proxies.Behind never receive them.
var forwardedHeaders = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Real-Ip",
}

// Behind replaces the proxy's address with the client's address for next. It
// removes all forwarding headers for addresses, hosts and schemes, because
// clients can forge them.
func (p Proxies) Behind(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addr := p.clientAddress(r)
		r = r.WithContext(r.Context()) // a copy
		r.Header = r.Header.Clone()
		for _, name := range forwardedHeaders {
			r.Header.Del(name)
		}
		if addr.IsValid() {
			r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
		}
		next.ServeHTTP(w, r)
	})
}

// clientAddress returns the client address that trusted proxies report: the last
// address that is not a trusted proxy itself. The address is invalid if the
// peer is the client.
func (p Proxies) clientAddress(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !p.isTrusted(peer.Addr()) {
		return netip.Addr{}
	}
	found := netip.Addr{}
	hops := parseHops(r.Header)
	for i := len(hops) - 1; i >= 0; i-- {
		a, ok := parseHop(hops[i])
		if !ok {
			break // the previous proxy sent no valid address
		}
		if found = a; !p.isTrusted(a) {
			break
		}
	}
	return found
}

func (p Proxies) isTrusted(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for _, n := range p {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// parseHops returns the hops in the headers, nearest last. X-Forwarded-For takes
// precedence over Forwarded, because proxies that support only X-Forwarded-For
// forward the other header unchanged.
func parseHops(h http.Header) (hops []string) {
	if lines := h.Values("X-Forwarded-For"); len(lines) > 0 {
		return strings.Split(strings.Join(lines, ","), ",")
	}
	for element := range strings.SplitSeq(strings.Join(h.Values("Forwarded"), ","), ",") {
		hop := ""
		for pair := range strings.SplitSeq(element, ";") {
			name, value, _ := strings.Cut(pair, "=")
			if strings.EqualFold(strings.TrimSpace(name), "for") {
				hop = value
			}
		}
		hops = append(hops, hop)
	}
	return hops
}

// parseHop parses an address with or without port, quotes and brackets.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.Trim(strings.TrimSpace(s), `"`)
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return a.Unmap().WithZone(""), err == nil
}

package egress

import (
	"fmt"
	"net/netip"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/hostaddr"
)

// judgeAddress returns the reason why an address that a name resolved to may not be dialed, or nil.
func (s *Session) judgeAddress(a netip.Addr, port int) *blockedError {
	rules := s.rules()
	verdict, rule := rules.Resolved(a, port)
	if verdict != brig.Allowed {
		reason := "the name resolves to an address of a private or special network"
		if rule >= 0 {
			reason = "the name resolves to an address that a rule denies"
		}
		return &blockedError{reason, rule, a}
	}
	if reason := s.describeHidden(rules, rule, a, port); reason != "" {
		return &blockedError{"the name resolves to " + reason, -1, a}
	}
	return nil
}

// describeHidden describes the target behind an address that its rule does not open.
// Such a target is this host, or an IPv4 address that is embedded in the
// address and that the rules do not allow. rule is the index of the rule that
// allowed the address, or -1.
func (s *Session) describeHidden(rules *brig.Egress, rule int, a netip.Addr, port int) (what string) {
	if rule >= 0 && matchesAddress(rules.Rules[rule].CIDR, a) && (rules.Operator || isNamed(a, s.Open)) {
		return ""
	}
	if s.CheckOwnAddress(a) {
		return "an address of this machine"
	}
	for _, e := range hostaddr.EmbeddedIPv4(a) {
		if s.CheckOwnAddress(e) {
			return "an address of this machine"
		}
		if v, _ := rules.Resolved(e, port); v != brig.Allowed {
			return "an IPv4 address of a private or special network, or a denied one, in another form"
		}
	}
	return ""
}

// matchesAddress reports whether a rule's network is exactly this address, and not a larger network
// that contains it. All of loopback counts as one address.
func matchesAddress(network string, a netip.Addr) bool {
	p, err := brig.ParseNetwork(network)
	return err == nil && isNamed(a, []netip.Prefix{p})
}

// isNamed is like matchesAddress for several networks.
func isNamed(a netip.Addr, networks []netip.Prefix) bool {
	for _, p := range networks {
		if (p.IsSingleIP() || p.Addr().IsLoopback()) && p.Contains(a) {
			return true
		}
	}
	return false
}

// CheckOwnAddress returns an error with the first rule that allows an address of
// this host, except addresses opened to all tenants by the operator. A host may
// get further addresses later, so a Session checks them again at each
// connection.
func CheckOwnAddress(e *brig.Egress, isOwn func(netip.Addr) bool, permitted []netip.Prefix) error {
	for i, r := range e.Rules {
		if r.Deny || r.CIDR == "" {
			continue
		}
		p, err := brig.ParseNetwork(r.CIDR)
		if err != nil || !p.IsSingleIP() && !p.Addr().IsLoopback() || !isOwn(p.Addr()) || isWithin(p, permitted) && isNamed(p.Addr(), permitted) {
			continue
		}
		return brig.InvalidField(fmt.Sprintf("egress.rules[%d].cidr", i), "%q is an address of the server's own machine", r.CIDR).
			WithHint("have an operator set the rule, or list the address in egress.networks")
	}
	return nil
}

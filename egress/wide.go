package egress

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/brig-run/brig"
)

// The shortest network prefixes that every tenant may allow. A larger network
// comprises nearly all addresses.
const (
	narrowest4 = 8
	narrowest6 = 16
)

// CheckBroadRules returns an error that names the first rule that allows nearly every
// host: any name, any name below a public suffix, or a large part of all
// addresses.
func CheckBroadRules(e *brig.Egress) error {
	for i, r := range e.Rules {
		if r.Deny {
			continue
		}
		field := fmt.Sprintf("egress.rules[%d]", i)
		if below, ok := strings.CutPrefix(r.Host, "*."); ok || r.Host == "*" {
			if suffix, _ := publicsuffix.PublicSuffix(below); r.Host == "*" || suffix == below {
				return brig.InvalidField(field+".host", "%q allows nearly everything", r.Host).
					WithHint("name the hosts, or have the operator set egress.wide")
			}
		}
		if r.CIDR == "" {
			continue
		}
		p, err := brig.ParseNetwork(r.CIDR)
		if err != nil || p.Addr().Is4() && p.Bits() < narrowest4 || p.Addr().Is6() && p.Bits() < narrowest6 {
			return brig.InvalidField(field+".cidr", "%q allows nearly everything", r.CIDR).
				WithHint("name the networks, or have the operator set egress.wide")
		}
	}
	return nil
}

// CheckPrivateNetworks returns an error with the first rule that allows a network
// outside the public internet, except networks open to all tenants.
func CheckPrivateNetworks(e *brig.Egress, permitted []netip.Prefix) error {
	for i, r := range e.Rules {
		if r.Deny || r.CIDR == "" {
			continue
		}
		p, err := brig.ParseNetwork(r.CIDR)
		if err == nil && !brig.InSpecialNetwork(p) {
			continue
		}
		if err == nil && isWithin(p, permitted) {
			continue
		}
		return brig.InvalidField(fmt.Sprintf("egress.rules[%d].cidr", i), "%q is not of the public internet", r.CIDR).
			WithHint("have the operator list it in egress.networks")
	}
	return nil
}

func isWithin(p netip.Prefix, networks []netip.Prefix) bool {
	for _, o := range networks {
		if o.Contains(p.Addr()) && p.Bits() >= o.Bits() {
			return true
		}
	}
	return false
}

package e2b

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// allNetworks returns the networks that together contain every address.
func allNetworks() []string { return []string{"0.0.0.0/0", "::/0"} }

// egress converts n to brig.Egress. Allowed addresses take precedence over
// denied ones. An address in neither list is allowed if internet is true, which
// requires the server's configuration.
func (n *network) egress(internet bool) (brig.Egress, error) {
	var out brig.Egress
	for _, place := range n.AllowOut {
		r, err := parseDestination("network.allowOut", place)
		if err != nil {
			return out, err
		}
		out.Rules = append(out.Rules, r)
	}
	for _, place := range n.DenyOut {
		r, err := parseDestination("network.denyOut", place)
		if err != nil {
			return out, err
		}
		if r.Host != "" {
			return out, brig.InvalidField("network.denyOut", "%q is not a network", brig.Clip(place, 100))
		}
		if isAll(r.CIDR) {
			internet = false // without a rule the address is denied
			continue
		}
		r.Deny = true
		out.Rules = append(out.Rules, r)
	}
	if internet {
		out.Rules = append(out.Rules, OpenEgress().Rules...)
	}
	return out, nil
}

// OpenEgress returns rules that allow every address.
func OpenEgress() brig.Egress {
	rules := []brig.EgressRule{{Host: "*"}}
	for _, network := range allNetworks() {
		rules = append(rules, brig.EgressRule{CIDR: network})
	}
	return brig.Egress{Rules: rules}
}

// parseDestination parses a host, a network or an address.
func parseDestination(field, place string) (brig.EgressRule, error) {
	r := brig.EgressRule{Host: strings.ToLower(strings.TrimSuffix(place, "."))}
	if p, err := brig.ParseNetwork(place); err == nil {
		r = brig.EgressRule{CIDR: p.Masked().String()}
		if a, err := netip.ParseAddr(place); err == nil {
			r.CIDR = a.String()
		}
	}
	if err := (&brig.Egress{Rules: []brig.EgressRule{r}}).Check(); err != nil {
		return r, brig.InvalidField(field, "%q is neither a host nor a network", brig.Clip(place, 100))
	}
	return r, nil
}

func isAll(cidr string) bool {
	for _, network := range allNetworks() {
		if cidr == network {
			return true
		}
	}
	return false
}

// setEgress converts a sandbox's egress rules to E2B's fields. A client that
// sends these fields back does not change the rules. The rules for the whole
// internet are left out, because in allowOut they would override denyOut. If a
// sandbox has no rules for the whole internet, denyOut contains all other
// addresses.
func (n *network) setEgress(e brig.Egress) {
	open := mayConnect(e)
	for _, r := range e.Rules {
		place := r.Host + r.CIDR
		switch {
		case r.Deny:
			n.DenyOut = append(n.DenyOut, place)
		case !open || r.Host != "*" && !isAll(r.CIDR):
			n.AllowOut = append(n.AllowOut, place)
		}
	}
	if !open {
		n.DenyOut = append(n.DenyOut, allNetworks()[0])
	}
}

// mayConnect reports whether a sandbox may connect to every address.
func mayConnect(e brig.Egress) bool {
	for _, r := range e.Rules {
		if r.Host == "*" && !r.Deny {
			return true
		}
	}
	return false
}

// hasInternet reports whether a rule allows all hosts or all addresses.
func hasInternet(e brig.Egress) bool {
	return mayConnect(e) || slices.ContainsFunc(e.Rules, func(r brig.EgressRule) bool { return isAll(r.CIDR) && !r.Deny })
}

// setNetwork replaces the egress rules of a sandbox.
func (sb *sandboxes) setNetwork(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		network
		AllowInternetAccess *bool `json:"allow_internet_access"`
	}
	s, err := sb.finder.findRunning(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	rules, err := in.egress(sb.internet(in.AllowInternetAccess))
	if err != nil {
		return err
	}
	rules.Bandwidth = brig.SameBandwidth // E2B clients have no bandwidth setting
	if _, err := sb.Service.SetEgress(r.Context(), string(s.ID), rules); err != nil {
		return endedError(s.ID, err)
	}
	writeEmpty(w)
	return nil
}

// internet reports whether a sandbox may connect to every address that its
// request does not deny. requested is the option in the request.
func (sb *sandboxes) internet(requested *bool) bool {
	return sb.Internet && (requested == nil || *requested)
}

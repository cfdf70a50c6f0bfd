package e2b

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/brig-run/brig"
)

// all are the networks that are everything.
func all() []string { return []string{"0.0.0.0/0", "::/0"} }

// egress is what a sandbox may connect to, in our words. What is allowed beats
// what is denied; what is neither is open if internet is, which is only so
// where the server's configuration says so.
func (n *network) egress(internet bool) (brig.Egress, error) {
	var out brig.Egress
	for _, place := range n.AllowOut {
		r, err := placeOf("network.allowOut", place)
		if err != nil {
			return out, err
		}
		out.Rules = append(out.Rules, r)
	}
	for _, place := range n.DenyOut {
		r, err := placeOf("network.denyOut", place)
		if err != nil {
			return out, err
		}
		if r.Host != "" {
			return out, brig.InvalidField("network.denyOut", "%q is not a network", brig.Clip(place, 100))
		}
		if isAll(r.CIDR) {
			internet = false // so it is without a rule
			continue
		}
		r.Deny = true
		out.Rules = append(out.Rules, r)
	}
	if internet {
		out.Rules = append(out.Rules, brig.EgressRule{Host: "*"})
		for _, network := range all() {
			out.Rules = append(out.Rules, brig.EgressRule{CIDR: network})
		}
	}
	return out, nil
}

// placeOf reads a host, a network or an address.
func placeOf(field, place string) (brig.EgressRule, error) {
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
	for _, network := range all() {
		if cidr == network {
			return true
		}
	}
	return false
}

// tell says what a sandbox may connect to, in E2B's words.
func (n *network) tell(e brig.Egress) {
	for _, r := range e.Rules {
		place := r.Host + r.CIDR
		if r.Deny {
			n.DenyOut = append(n.DenyOut, place)
		} else {
			n.AllowOut = append(n.AllowOut, place)
		}
	}
}

// mayConnect reports whether a sandbox may connect to everything.
func mayConnect(e brig.Egress) bool {
	for _, r := range e.Rules {
		if r.Host == "*" && !r.Deny {
			return true
		}
	}
	return false
}

// network replaces what a sandbox may connect to.
func (d *Door) network(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		network
		AllowInternetAccess *bool `json:"allow_internet_access"`
	}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	rules, err := in.egress(d.internet(in.AllowInternetAccess))
	if err != nil {
		return err
	}
	if _, err := d.Service.SetEgress(r.Context(), string(s.ID), rules); err != nil {
		return ended(s.ID, err)
	}
	none(w)
	return nil
}

// internet reports whether a sandbox that was asked for like this may connect
// to everything that it is not denied.
func (d *Door) internet(asked *bool) bool { return d.Internet && (asked == nil || *asked) }

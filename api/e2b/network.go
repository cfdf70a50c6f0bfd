package e2b

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/brig-run/brig"
)

// network is the network object of a sandbox: its inbound and outbound access.
type network struct {
	AllowOut           []string                   `json:"allowOut,omitempty"`
	DenyOut            []string                   `json:"denyOut,omitempty"`
	Rules              map[string]json.RawMessage `json:"rules,omitempty"`
	EgressProxy        *json.RawMessage           `json:"egressProxy,omitempty"`
	AllowPublicTraffic *bool                      `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string                     `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int                      `json:"httpsPorts,omitempty"`
}

// check returns an error if n has unsupported options or harmful values.
func (n *network) check() error {
	switch {
	case len(n.Rules) > 0:
		return errUnsupported("network.rules")
	case n.EgressProxy != nil:
		return errUnsupported("network.egressProxy")
	}
	for _, port := range n.HTTPSPorts {
		if port < 1 || port > 65535 || port == portEnvd {
			return brig.InvalidField("network.httpsPorts", "%d cannot be one", port)
		}
	}
	host := strings.ReplaceAll(n.MaskRequestHost, portMark, "0")
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_[]"
	if strings.Trim(host, letters) != "" || len(host) > 255 {
		return brig.InvalidField("network.maskRequestHost", "it is not a host")
	}
	return nil
}

// portMark is the placeholder for the port in maskRequestHost.
const portMark = "${PORT}"

// storeIn stores n in a sandbox's labels.
func (n *network) storeIn(labels map[string]string) {
	labels[labelNetwork] = "true"
	if n.AllowPublicTraffic != nil {
		labels[labelPublic] = strconv.FormatBool(*n.AllowPublicTraffic)
	}
	if n.MaskRequestHost != "" {
		labels[labelMask] = n.MaskRequestHost
	}
	if len(n.HTTPSPorts) > 0 {
		ports := make([]string, len(n.HTTPSPorts))
		for i, p := range n.HTTPSPorts {
			ports[i] = strconv.Itoa(p)
		}
		labels[labelHTTPS] = strings.Join(ports, ",")
	}
}

// networkOf returns the network object that storeIn stored, with the sandbox's
// current egress rules. It returns nil if the request had no such object, the
// sandbox has no egress rules, and internet (which is Options.Internet) is
// false.
func networkOf(s *brig.Sandbox, internet bool) *network {
	l := s.Spec.Labels
	if l[labelNetwork] == "" && len(s.Spec.Egress.Rules) == 0 && !internet {
		return nil
	}
	n := &network{MaskRequestHost: l[labelMask]}
	n.setEgress(s.Spec.Egress)
	if public, err := strconv.ParseBool(l[labelPublic]); err == nil {
		n.AllowPublicTraffic = &public
	}
	for p := range strings.SplitSeq(l[labelHTTPS], ",") {
		if port, err := strconv.Atoi(p); err == nil {
			n.HTTPSPorts = append(n.HTTPSPorts, port)
		}
	}
	return n
}

// isClosed reports whether the ports of s need the traffic token.
func isClosed(s *brig.Sandbox) bool { return s.Spec.Labels[labelPublic] == "false" }

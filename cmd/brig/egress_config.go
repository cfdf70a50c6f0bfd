package main

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"os"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/egress"
	"github.com/brig-run/brig/engine"
)

// egressConfig is the egress section of the configuration.
type egressConfig struct {
	// Wide permits rules that allow nearly all destinations, for all tenants.
	Wide bool `yaml:"wide"`
	// Networks lists the special-purpose networks to which all tenants may allow connections.
	Networks []string `yaml:"networks"`
	// OwnAddresses are addresses that are routed to this machine but are on
	// none of its interfaces, for example the public address of a machine
	// behind NAT.
	OwnAddresses []string `yaml:"own_addresses"`
	// Memory bounds the memory that the server uses for one sandbox's connections.
	Memory size `yaml:"memory"`
	// Resolver is the address and port of the name server to use.
	Resolver string `yaml:"resolver"`
	// Roots is the name of a PEM file with additional CA certificates.
	Roots string `yaml:"roots"`
}

// minEgressMemory is sufficient for a few connections and one upload.
const minEgressMemory = 4 * brig.MiB

// options returns the engine's egress options.
func (c *egressConfig) options() (engine.EgressOptions, error) {
	o := engine.EgressOptions{AllowWide: c.Wide, Memory: int64(c.Memory)}
	if o.Memory != 0 && o.Memory < minEgressMemory {
		return o, brig.Errorf(brig.InvalidConfig, "egress.memory: %s is too small", brig.FormatBytes(o.Memory)).
			WithHint("give %s or more, or leave it out for %s", brig.FormatBytes(minEgressMemory), brig.FormatBytes(egress.DefaultMemory))
	}
	var err error
	if o.Networks, err = parseNetworks("egress.networks", c.Networks, "10.1.0.0/16"); err != nil {
		return o, err
	}
	if _, err := c.ownAddresses(); err != nil {
		return o, err
	}
	if c.Resolver != "" {
		if _, err := netip.ParseAddrPort(c.Resolver); err != nil {
			return o, brig.Errorf(brig.InvalidConfig, "egress.resolver: %q is not an address and port", c.Resolver).
				WithHint("for example 127.0.0.1:53")
		}
		server := c.Resolver
		o.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}}
	}
	if c.Roots != "" {
		pem, err := os.ReadFile(c.Roots)
		if err != nil {
			return o, brig.Errorf(brig.InvalidConfig, "cannot read egress.roots").WithHint("check the file's name and mode").Because(err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return o, brig.Errorf(brig.InvalidConfig, "egress.roots has no certificate").WithHint("give a file of certificates in PEM")
		}
		o.Roots = pool
	}
	return o, nil
}

// ownAddresses returns the addresses from the configuration that are routed to this machine but are
// on none of its interfaces.
func (c *egressConfig) ownAddresses() ([]netip.Prefix, error) {
	return parseNetworks("egress.own_addresses", c.OwnAddresses, "198.51.100.7")
}

// parseNetworks parses a list of networks and addresses.
func parseNetworks(field string, list []string, example string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for i, n := range list {
		p, err := brig.ParseNetwork(n)
		if err != nil || p != p.Masked() {
			return nil, brig.Errorf(brig.InvalidConfig, "%s[%d]: %q is not a network", field, i, n).
				WithHint("for example %s", example)
		}
		out = append(out, p)
	}
	return out, nil
}

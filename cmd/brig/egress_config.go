package main

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"os"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// egressConfig is the part of the configuration about where sandboxes may
// connect to.
type egressConfig struct {
	// Wide lets everybody have rules that allow nearly everything.
	Wide bool `yaml:"wide"`
	// Networks are special ones that everybody may have rules for.
	Networks []string `yaml:"networks"`
	// Resolver is a name server's address and port.
	Resolver string `yaml:"resolver"`
	// Roots is a file of further authorities.
	Roots string `yaml:"roots"`
}

// options are what the engine is told of it.
func (c *egressConfig) options() (engine.EgressOptions, error) {
	o := engine.EgressOptions{Wide: c.Wide}
	for i, n := range c.Networks {
		p, err := brig.ParseNetwork(n)
		if err != nil || p != p.Masked() {
			return o, brig.Errorf(brig.InvalidConfig, "egress.networks[%d]: %q is not a network", i, n).
				WithHint("for example 10.1.0.0/16")
		}
		o.Networks = append(o.Networks, p)
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
			return o, brig.Errorf(brig.InvalidConfig, "egress.roots cannot be read").WithHint("check the file's name and mode").Because(err)
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

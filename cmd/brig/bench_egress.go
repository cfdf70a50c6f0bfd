//go:build bench

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

//go:embed bench_egress.py
var egressScript string

// egressBound is the bandwidth limit, in bytes per second, of the sandbox whose egress is limited.
const egressBound = 20e6

// egressLarge is the number of bytes that are downloaded to measure throughput.
const egressLarge = 64 << 20

func (c benchCommands) egress() *cobra.Command {
	var rounds, requests int
	cmd := &cobra.Command{
		Use:   "egress",
		Short: "Time connections out of a sandbox beside direct ones: by address, by name, looked at",
		Args:  cobra.NoArgs,
		RunE:  c.wrapBenchmark(func(ctx context.Context, w *workbench) error { return w.measureEgress(ctx, rounds, requests) }),
	}
	cmd.Flags().IntVarP(&rounds, "rounds", "n", 5, "rounds of each")
	cmd.Flags().IntVar(&requests, "asks", 20, "requests of each round, each on a connection of its own")
	return cmd
}

// networkPath is one path to a server, with its measurements.
type networkPath struct {
	name, host, target string // target is the address to connect to
	port               int
	secure, bare       bool
	direct             *networkPath // the path to compare with
	MS                 []float64    `json:"ms"`
	MBPerSec           []float64    `json:"mb_per_s"`
}

func (w *workbench) measureEgress(ctx context.Context, rounds, requests int) error {
	own, err := findOwnAddress()
	if err != nil {
		return err
	}
	plain, secure, roots, err := startEgressServers(own)
	if err != nil {
		return err
	}
	defer plain.Close()
	defer secure.Close()
	g, err := w.newRig(ctx, engine.PoolOptions{}, func(o *engine.Options) {
		o.Egress = engine.EgressOptions{Resolver: always(own), Roots: roots}
	})
	if err != nil {
		return err
	}
	defer g.close()
	box, err := g.engine.Create(g.ctx, brig.Spec{TTL: time.Hour, Limits: brig.Limits{Memory: brig.GiB, CPUs: 2}, Egress: brig.Egress{Rules: []brig.EgressRule{
		{CIDR: own.String()}, {Host: "plain.test"}, {Host: "looked.test", Methods: []string{"GET"}},
	}}})
	if err != nil {
		return err
	}
	port := func(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }
	hostAddress := own.String()
	direct := &networkPath{name: "direct, HTTP", host: hostAddress, target: hostAddress, port: port(plain), bare: true}
	directTLS := &networkPath{name: "direct, HTTPS", host: "plain.test", target: hostAddress, port: port(secure), secure: true, bare: true}
	contenders := []*networkPath{
		direct,
		{name: "by address, HTTP", host: hostAddress, target: hostAddress, port: port(plain), direct: direct},
		{name: "by name, HTTP", host: "plain.test", target: "plain.test", port: port(plain), direct: direct},
		{name: "looked at, HTTP", host: "looked.test", target: "looked.test", port: port(plain), direct: direct},
		directTLS,
		{name: "by name, HTTPS", host: "plain.test", target: "plain.test", port: port(secure), secure: true, direct: directTLS},
		{name: "looked at, HTTPS", host: "looked.test", target: "looked.test", port: port(secure), secure: true, direct: directTLS},
	}
	for round := range rounds + 1 {
		for _, o := range contenders {
			m, err := g.measureEgress(ctx, box.Spec.Name, o, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			if round > 0 { // the first round is a warm-up
				o.MS, o.MBPerSec = append(o.MS, m.MS...), append(o.MBPerSec, m.MBPerSec...)
			}
		}
	}
	r := &report{Bench: "egress", About: fmt.Sprintf("%d rounds of %d requests, each on a connection of its own, and of %d MiB; a Python client in a sandbox and on the host, a server on the host", rounds, requests, egressLarge>>20)}
	for _, o := range contenders {
		row := r.row(o.name).set("count", float64(len(o.MS))).set("p50_ms", quantile(o.MS, 0.5)).set("p99_ms", quantile(o.MS, 0.99)).
			set("mb_per_s", quantile(o.MBPerSec, 0.5))
		if o.direct != nil {
			row.peer = o.direct.name
			row.set("ratio", quantile(o.MS, 0.5)/quantile(o.direct.MS, 0.5))
		}
	}
	bounded, err := g.engine.Create(g.ctx, brig.Spec{TTL: time.Hour, Egress: brig.Egress{Bandwidth: egressBound, Rules: []brig.EgressRule{{CIDR: own.String()}, {Host: "plain.test"}}}})
	if err != nil {
		return err
	}
	m, err := g.measureEgress(ctx, bounded.Spec.Name, contenders[2], 1)
	if err != nil {
		return err
	}
	rate := quantile(m.MBPerSec, 0.5)
	r.row(fmt.Sprintf("by name, HTTP, bounded to %.0f MB/s", egressBound/1e6)).set("count", 1).set("mb_per_s", rate)
	r.requireAtMost("deviation from the bound on bandwidth, in %", 100*math.Abs(rate*1e6/egressBound-1), 10)
	return w.printLoad(r)
}

// measureEgress measures one path, either from the sandbox or from a Python process on the host.
func (g *rig) measureEgress(ctx context.Context, name string, o *networkPath, requests int) (*networkPath, error) {
	code := egressScript + fmt.Sprintf("\nprint(measure(%q, %q, %d, %s, %d))\n", o.host, o.target, o.port, map[bool]string{true: "True", false: "False"}[o.secure], requests)
	var out []byte
	if o.bare {
		cmd := exec.CommandContext(ctx, "python3", "-c", code)
		b, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		out = b
	} else {
		res, err := g.engine.RunCode(g.ctx, name, brig.Code{Language: brig.Python, Source: code, Timeout: 5 * time.Minute}, nil)
		if err != nil {
			return nil, err
		}
		if res.Error != nil {
			return nil, fmt.Errorf("in the sandbox: %s: %s", res.Error.Name, res.Error.Value)
		}
		out = res.Stdout.Head
	}
	m := &networkPath{}
	if err := json.Unmarshal([]byte(strings.TrimSpace(string(out))), m); err != nil {
		return nil, fmt.Errorf("decode %q: %w", out, err)
	}
	return m, nil
}

// startEgressServers starts an HTTP server and an HTTPS server on the address own.
func startEgressServers(own netip.Addr) (plain, secure *httptest.Server, roots *x509.CertPool, err error) {
	large := make([]byte, 1<<20)
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(egressLarge))
		for range egressLarge / len(large) {
			if _, err := w.Write(large); err != nil {
				return
			}
		}
	})
	listen := func() (net.Listener, error) { return net.Listen("tcp", net.JoinHostPort(own.String(), "0")) }
	plain, secure = httptest.NewUnstartedServer(mux), httptest.NewUnstartedServer(mux)
	_, _ = plain.Listener.Close(), secure.Listener.Close() // replace the loopback listeners: a sandbox has its own loopback interface
	if plain.Listener, err = listen(); err != nil {
		return nil, nil, nil, err
	}
	if secure.Listener, err = listen(); err != nil {
		return nil, nil, nil, err
	}
	cert, roots, err := selfSigned("plain.test", "looked.test")
	if err != nil {
		return nil, nil, nil, err
	}
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}}
	plain.Start()
	secure.StartTLS()
	return plain, secure, roots, nil
}

// always is a resolver that resolves every name to one address.
type always netip.Addr

// LookupNetIP implements egress.Resolver.
func (a always) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.Addr(a)}, nil
}

// findOwnAddress returns an IPv4 address of this machine that sandboxes can reach.
func findOwnAddress() (netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, i := range list {
		if p, ok := i.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(p.IP); ok && a.Unmap().Is4() && !a.Unmap().IsLoopback() && !a.Unmap().IsLinkLocalUnicast() {
				return a.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, brig.Errorf(brig.FailedPrecondition, "this machine has no address but its loopback's").
		WithHint("give it one, for example on a dummy interface")
}

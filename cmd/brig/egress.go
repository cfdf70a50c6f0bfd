package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brig-run/brig"
)

// egressFlags are the flags for the egress rules of a sandbox.
type egressFlags struct {
	rules     []brig.EgressRule
	bandwidth string
}

func (f *egressFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.Var(ruleFlag{f, false}, "allow", "allow connections to `DEST`: host, *.host or network, with :port,port; or \"GET,POST host/path*\"")
	fl.Var(ruleFlag{f, true}, "deny", "deny connections to `DEST`; the first rule that matches decides")
	fl.StringVar(&f.bandwidth, "bandwidth", "", "limit of bytes per second in each direction, for example 1MiB")
}

func (f *egressFlags) egress() (brig.Egress, error) {
	n, err := parseSize("--bandwidth", f.bandwidth)
	return brig.Egress{Rules: f.rules, Bandwidth: n}, err
}

// ruleFlag collects rules in the order of the flags.
type ruleFlag struct {
	f    *egressFlags
	deny bool
}

var _ pflag.Value = ruleFlag{}

// String implements pflag.Value.
func (r ruleFlag) String() string { return "" }

// Type implements pflag.Value.
func (r ruleFlag) Type() string { return "DEST" }

// Set implements pflag.Value.
func (r ruleFlag) Set(s string) error {
	rule, err := parseRule(s)
	if err != nil {
		return err
	}
	rule.Deny = r.deny
	r.f.rules = append(r.f.rules, rule)
	return nil
}

// parseRule parses a destination: [METHOD,… ]host[:port,…][/path], or a network with optional
// ports.
func parseRule(s string) (brig.EgressRule, error) {
	var r brig.EgressRule
	if methods, rest, ok := strings.Cut(s, " "); ok {
		r.Methods, s = strings.Split(methods, ","), strings.TrimSpace(rest)
	}
	if _, err := brig.ParseNetwork(s); err == nil {
		r.CIDR = s
		return r, nil
	}
	place, ports, withPorts := s, "", false
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		place, ports, withPorts = s[:i], s[i+1:], true
	}
	if p := strings.IndexByte(ports, '/'); p >= 0 {
		r.Paths, ports = []string{ports[p:]}, ports[:p]
	}
	if _, err := brig.ParseNetwork(place); err == nil {
		r.CIDR = place
	} else {
		if p := strings.IndexByte(place, '/'); p >= 0 {
			r.Paths, place = []string{place[p:]}, place[:p]
		}
		r.Host = strings.ToLower(place)
	}
	if withPorts {
		for p := range strings.SplitSeq(ports, ",") {
			n, err := strconv.Atoi(p)
			if err != nil {
				return r, brig.InvalidField("--allow", "%q is not a port", brig.Clip(p, 40)).
					WithHint("for example --allow api.example.com:443")
			}
			r.Ports = append(r.Ports, n)
		}
	}
	return r, nil
}

// networkCommands creates the subcommands of brig sandbox for the network.
type networkCommands struct{ *cli }

// commands returns the commands for the network of a sandbox.
func (c networkCommands) commands() []*cobra.Command {
	return []*cobra.Command{c.egress(), c.forward()}
}

func (c networkCommands) egress() *cobra.Command {
	var f egressFlags
	cmd := &cobra.Command{
		Use:   "egress NAME",
		Short: "Replace the egress rules of a sandbox",
		Long: `Replace all egress rules of a sandbox by those of --allow and --deny, in their order. The
first rule that matches decides. Without rules, all egress is blocked. With only
--bandwidth, the rules stay.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := f.egress()
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				changed := cmd.Flags().Changed
				if !changed("bandwidth") {
					rules.Bandwidth = brig.SameBandwidth
				} else if !changed("allow") && !changed("deny") {
					now, err := svc.Get(ctx, args[0])
					if err != nil {
						return err
					}
					rules.Rules = now.Spec.Egress.Rules
				}
				s, err := svc.SetEgress(ctx, args[0], rules)
				if err != nil {
					return err
				}
				return sandboxCommands(c).showSandbox(s, s.Spec.Name)
			})
		},
	}
	cmd.Flags().SortFlags = false
	f.add(cmd)
	return cmd
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// providerCommands creates the commands of brig provider.
type providerCommands struct{ *cli }

func (c providerCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "provider",
		Aliases: []string{"providers"},
		Short:   "Manage providers of sandboxes",
	}
	cmd.AddCommand(c.list(), c.describe(), c.configure(), c.test(), c.activate(), c.remove(), c.route())
	return cmd
}

func (c providerCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List providers, and the kinds that can be configured",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Providers(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "ID\tSTATE\tISOLATION\tUSERS\tTITLE", func(p brig.ProviderInfo) []string {
					return []string{p.ID, providerState(&p), cmp.Or(p.Capabilities.Isolation, "-"), strconv.Itoa(p.Users), p.Title}
				})
			})
		},
	}
}

// providerState describes the state of a provider in a few words.
func providerState(p *brig.ProviderInfo) string {
	var words []string
	switch {
	case !p.Configured:
		return "not configured"
	case p.Active:
		words = append(words, "active")
	}
	if !p.Up {
		words = append(words, "down: "+p.Why)
	}
	if len(words) == 0 {
		return "up"
	}
	return strings.Join(words, ", ")
}

// findProvider returns the provider with the given ID. If it does not exist,
// provider returns the entry of the ID's kind.
func findProvider(ctx context.Context, svc brig.Service, id string) (*brig.ProviderInfo, error) {
	list, err := svc.Providers(ctx)
	if err != nil {
		return nil, err
	}
	for _, same := range []func(p brig.ProviderInfo) bool{
		func(p brig.ProviderInfo) bool { return p.ID == id },
		func(p brig.ProviderInfo) bool { return p.Driver == brig.ProviderDriver(id) },
	} {
		if i := slices.IndexFunc(list, same); i >= 0 {
			return &list[i], nil
		}
	}
	return nil, brig.Errorf(brig.NotFound, "no provider %q", brig.Clip(id, 63)).WithHint("list the providers with: brig provider ls")
}

func (c providerCommands) describe() *cobra.Command {
	return &cobra.Command{
		Use:   "describe ID",
		Short: "Describe a provider and the fields of its configuration",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				p, err := findProvider(ctx, svc, args[0])
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(p)
				}
				fmt.Fprintf(c.stdout, "%s: %s\n%s\n", p.ID, p.Title, p.Doc)
				if len(p.Fields) == 0 {
					return nil
				}
				var rows [][]string
				for _, f := range p.Fields {
					rows = append(rows, []string{f.Name, fieldType(f), fieldDefault(f), fieldRange(f), cmp.Or(f.Doc, f.Label)})
				}
				return c.printTable("FIELD\tTYPE\tDEFAULT\tRANGE\tDESCRIPTION", rows)
			})
		},
	}
}

func fieldType(f brig.ConfigField) string {
	words := []string{f.Type}
	for word, is := range map[string]bool{"required": f.Required, "secret": f.Secret, "read only": f.ReadOnly} {
		if is {
			words = append(words, word)
		}
	}
	slices.Sort(words[1:])
	return strings.Join(words, ", ")
}

func fieldDefault(f brig.ConfigField) string {
	if f.Default == nil {
		return "-"
	}
	return fmt.Sprint(f.Default)
}

func fieldRange(f brig.ConfigField) string {
	bound := func(n *float64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatFloat(*n, 'f', -1, 64)
	}
	switch {
	case len(f.Options) > 0:
		return strings.Join(f.Options, " | ")
	case f.Min != nil || f.Max != nil:
		return bound(f.Min) + " to " + bound(f.Max)
	}
	return "-"
}

func (c providerCommands) configure() *cobra.Command {
	var (
		set                []string
		terms              brig.Terms
		activate, test     bool
		region, max, price = "region", "max", "second"
	)
	cmd := &cobra.Command{
		Use:   "configure ID",
		Short: "Create or change the configuration of a provider",
		Example: `  brig provider configure self_managed --set endpoint=http://10.0.0.7:9385 --test --activate
  brig provider configure e2b@eu --set api_key=@key.txt --set region=eu --max 20`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				var out *brig.ProviderInfo
				err := brig.Reapply(ctx, func() error {
					p, err := findProvider(ctx, svc, args[0])
					if err != nil {
						return err
					}
					in := brig.ProviderConfig{ID: args[0], Activate: activate, Test: test, Rev: 1} // the provider does not exist yet
					if p.ID == args[0] {
						in.Rev = p.Rev
					}
					if len(set) > 0 {
						if in.Config, err = parseFields(p, args[0], set); err != nil {
							return err
						}
					}
					if f := cmd.Flags(); f.Changed(region) || f.Changed(max) || f.Changed(price) {
						all := brig.Terms{}
						if p.ID == args[0] {
							all = p.Terms
						}
						for flag, set := range map[string]func(){
							region: func() { all.Region = terms.Region }, max: func() { all.Max = terms.Max }, price: func() { all.Second = terms.Second },
						} {
							if f.Changed(flag) {
								set()
							}
						}
						in.Terms = &all
					}
					out, err = svc.ConfigureProvider(ctx, in)
					return err
				})
				if err != nil {
					return c.printWrongFields(err)
				}
				if c.asJSON {
					return c.printJSON(out)
				}
				_, err = fmt.Fprintf(c.stdout, "%s: %s\n", out.ID, providerState(out))
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&set, "set", nil, "set a field, as `NAME=VALUE`; @FILE reads the value from a file")
	f.StringVar(&terms.Region, region, "", "`region` of the provider, for routing")
	f.IntVar(&terms.Max, max, 0, "concurrent sandboxes and programs before it is full; 0 is unlimited")
	f.Float64Var(&terms.Second, price, 0, "price of one second of a sandbox")
	f.BoolVar(&activate, "activate", false, "make it the active provider")
	f.BoolVar(&test, "test", false, "run a test program first, and change nothing if it fails")
	return cmd
}

// printWrongFields prints all field errors if there are several, and returns err.
func (c providerCommands) printWrongFields(err error) error {
	e := brig.AsError(err)
	if len(e.Fields) > 1 {
		for _, f := range e.Fields {
			fmt.Fprintf(c.stderr, "%s: %s\n", f.Field, f.Message)
		}
	}
	return err
}

// parseFields applies NAME=VALUE pairs to the existing configuration.
func parseFields(p *brig.ProviderInfo, id string, set []string) (json.RawMessage, error) {
	config := map[string]any{}
	if p.ID == id && len(p.Config) > 0 {
		if err := json.Unmarshal(p.Config, &config); err != nil {
			return nil, err
		}
	}
	for _, s := range set {
		name, text, ok := strings.Cut(s, "=")
		if !ok {
			return nil, brig.InvalidField("--set", "%q has no =", brig.Clip(s, 80)).WithHint("for example --set NAME=VALUE; brig provider describe %s lists the fields", id)
		}
		if file, ok := strings.CutPrefix(text, "@"); ok {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, unreadableError("--set", file, err)
			}
			text = strings.TrimRight(string(b), "\r\n")
		}
		config[name] = valueOf(p.Fields, name, text)
	}
	return json.Marshal(config)
}

// valueOf converts a value to the type of its field. A value of another type
// remains text, and the server rejects it.
func valueOf(fields []brig.ConfigField, name, text string) any {
	i := slices.IndexFunc(fields, func(f brig.ConfigField) bool { return f.Name == name })
	if i < 0 {
		return text
	}
	switch fields[i].Type {
	case "integer", "number", "boolean":
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			return v
		}
	case "array":
		if text == "" {
			return []string{}
		}
		return strings.Split(text, ",")
	}
	return text
}

func (c providerCommands) test() *cobra.Command {
	var set []string
	cmd := &cobra.Command{
		Use:   "test ID",
		Short: "Run a test program at a provider",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				in := brig.ProviderConfig{ID: args[0]}
				if len(set) > 0 {
					p, err := findProvider(ctx, svc, args[0])
					if err != nil {
						return err
					}
					if in.Config, err = parseFields(p, args[0], set); err != nil {
						return err
					}
				}
				t, err := svc.TestProvider(ctx, in)
				if err != nil {
					return c.printWrongFields(err)
				}
				if c.asJSON {
					return c.printJSON(t)
				}
				if !t.OK {
					return brig.Errorf(brig.ConnectionFailed, "%s", t.Message).WithHint("%s", t.Hint)
				}
				_, err = fmt.Fprintf(c.stdout, "%s (%d ms)\n", t.Message, t.Latency.Milliseconds())
				return err
			})
		},
	}
	cmd.Flags().StringArrayVar(&set, "set", nil, "set a field, as `NAME=VALUE`; @FILE reads the value from a file")
	return cmd
}

func (c providerCommands) activate() *cobra.Command {
	return &cobra.Command{
		Use:   "activate ID",
		Short: "Make a provider the active one",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return svc.ActivateProvider(ctx, args[0]) })
		},
	}
}

func (c providerCommands) remove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID",
		Aliases: []string{"remove"},
		Short:   "Remove a provider without sandboxes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return svc.RemoveProvider(ctx, args[0]) })
		},
	}
}

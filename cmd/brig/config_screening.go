package main

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/screen"
)

// These are the modes of screening.
const (
	screenOff   = "off"   // all code may run
	screenDeny  = "deny"  // listed code is rejected
	screenAllow = "allow" // only listed imports may run, and code on the deny list is rejected
)

// screening configures the rejection of code before it runs.
type screening struct {
	Mode       string      `yaml:"mode"`
	Python     screenRules `yaml:"python"`
	JavaScript screenRules `yaml:"javascript"`
	// Others allows languages that cannot be screened.
	Others bool `yaml:"others"`
}

// screenRules are the lists for one language. If a list is omitted, the default of package screen
// applies. An explicit empty list stays empty.
type screenRules struct {
	Allow      []string `yaml:"allow"` // imports
	Imports    []string `yaml:"imports"`
	Calls      []string `yaml:"calls"`
	Attributes []string `yaml:"attributes"`
	// Commands allows IPython commands.
	Commands bool `yaml:"commands"`
}

// rules returns the rules that the lists define. It returns nil if screening is disabled.
func (s *screening) rules() (*brig.Screening, error) {
	switch s.Mode {
	case "", screenOff:
		return nil, nil
	case screenDeny, screenAllow:
	default:
		return nil, brig.Errorf(brig.InvalidConfig, "screening.mode: %q is not a mode", s.Mode).WithHint("use off, deny or allow")
	}
	for name, rules := range map[string]screenRules{"python": s.Python, "javascript": s.JavaScript} {
		if s.Mode == screenDeny && rules.Allow != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "screening.%s.allow needs the mode allow", name).
				WithHint("set screening.mode to allow, or leave the list out")
		}
	}
	return &brig.Screening{Others: s.Others, Rules: map[brig.Language]brig.ScreenRules{
		brig.Python:     s.Python.override(screen.PythonRules(), s.Mode),
		brig.JavaScript: s.JavaScript.override(screen.JavaScriptRules(), s.Mode),
	}}, nil
}

// override replaces the default lists with the configured ones.
func (s screenRules) override(r screen.Rules, mode string) screen.Rules {
	if s.Imports != nil {
		r.Imports = s.Imports
	}
	if s.Calls != nil {
		r.Calls = s.Calls
	}
	if s.Attributes != nil {
		r.Attributes = s.Attributes
	}
	r.Only, r.Allow, r.Commands = mode == screenAllow, s.Allow, s.Commands
	return r
}

// screen configures the engine's screening from the tenants' ceilings and, if it is enabled there,
// from the file. If only ceilings require screening, the screener starts on first use.
func (c *config) screen(ctx context.Context, o *engine.Options) error {
	rules, err := c.Screening.rules()
	if err != nil {
		return err
	}
	var screener screen.Screener
	o.ScreenTenant = screener.CheckPolicy
	if rules == nil {
		return nil
	}
	if err := screener.Warm(ctx); err != nil {
		return err
	}
	o.Screen = func(ctx context.Context, lang brig.Language, source string) error {
		return screener.CheckPolicy(ctx, rules, lang, source)
	}
	return nil
}

package main

import (
	"context"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/screen"
)

// The modes of screening.
const (
	screenOff   = "off"   // all code may run
	screenDeny  = "deny"  // what is listed may not
	screenAllow = "allow" // only imports that are listed may, and what is denied may not
)

// screening says which code is refused before it runs.
type screening struct {
	Mode       string      `yaml:"mode"`
	Python     screenRules `yaml:"python"`
	JavaScript screenRules `yaml:"javascript"`
	// Others lets languages run that cannot be screened.
	Others bool `yaml:"others"`
}

// screenRules are what is listed for one language. A list that is left out is
// that of the package screen; an empty one is empty.
type screenRules struct {
	Allow      []string `yaml:"allow"` // imports
	Imports    []string `yaml:"imports"`
	Calls      []string `yaml:"calls"`
	Attributes []string `yaml:"attributes"`
	// Commands lets commands of IPython run.
	Commands bool `yaml:"commands"`
}

// rules are what the lists make, nil if nothing is screened.
func (s *screening) rules() (*brig.Screening, error) {
	switch s.Mode {
	case "", screenOff:
		return nil, nil
	case screenDeny, screenAllow:
	default:
		return nil, brig.Errorf(brig.InvalidConfig, "screening.mode: %q is none", s.Mode).WithHint("use off, deny or allow")
	}
	for name, rules := range map[string]screenRules{"python": s.Python, "javascript": s.JavaScript} {
		if s.Mode == screenDeny && rules.Allow != nil {
			return nil, brig.Errorf(brig.InvalidConfig, "screening.%s.allow is nothing without the mode allow", name).
				WithHint("set screening.mode to allow, or leave the list out")
		}
	}
	return &brig.Screening{Others: s.Others, Rules: map[brig.Language]brig.ScreenRules{
		brig.Python:     s.Python.over(screen.PythonRules(), s.Mode),
		brig.JavaScript: s.JavaScript.over(screen.JavaScriptRules(), s.Mode),
	}}, nil
}

// over puts the lists in the place of what they are by default.
func (s screenRules) over(r screen.Rules, mode string) screen.Rules {
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

// screen has an engine screen code as the file says, if it does, and as
// tenants' ceilings say. For those alone nothing is made ready before it is
// wanted.
func (c *config) screen(ctx context.Context, o *engine.Options) error {
	rules, err := c.Screening.rules()
	if err != nil {
		return err
	}
	var screener screen.Screener
	o.ScreenBy = screener.ScreenBy
	if rules == nil {
		return nil
	}
	if err := screener.Warm(ctx); err != nil {
		return err
	}
	o.Screen = func(ctx context.Context, lang brig.Language, source string) error {
		return screener.ScreenBy(ctx, rules, lang, source)
	}
	return nil
}

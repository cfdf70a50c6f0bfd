package brig

import (
	"maps"
	"slices"
)

// Screening refuses code for what is written in it. It is advice, and never
// the boundary: what may run is as isolated as everything else.
type Screening struct {
	// Rules are those of Python and JavaScript, which TypeScript becomes.
	Rules map[Language]ScreenRules `json:",omitempty"`
	// Others lets languages run that have no rules.
	Others bool `json:",omitempty"`
}

// ScreenRules say what is not wanted in sources of one language.
type ScreenRules struct {
	// Imports are modules that may not be imported; one stands for what is in
	// it, too ("os" for "os.path", "fs" for "fs/promises").
	Imports []string `json:",omitempty"`
	// Calls are functions that may not be used: "eval", "os.system". A name
	// without a dot is a builtin's. "ctypes" stands for all of the module.
	// "open(w)" is open but for reading; "*.constructor" is that member of
	// anything.
	Calls []string `json:",omitempty"`
	// Attributes are members that may not be read of anything.
	Attributes []string `json:",omitempty"`
	// Only turns the imports around: what Allow does not have is refused, and
	// so is what cannot be parsed.
	Only  bool     `json:",omitempty"`
	Allow []string `json:",omitempty"`
	// Commands lets commands of IPython run: !ls, %pip install.
	Commands bool `json:",omitempty"`
}

// Bounds on the lists of a Screening: each call is screened by all of them.
const (
	maxScreenNames = 1000
	maxScreenName  = 256
)

// Check refuses what cannot be screened by. Nil is no screening. The field is
// what it is called in the request.
func (s *Screening) Check(field string) error {
	if s == nil {
		return nil
	}
	for lang, r := range s.Rules {
		at := field + "." + string(lang)
		if lang != Python && lang != JavaScript {
			return InvalidField(field, "%q cannot be screened", Clip(string(lang), 80)).WithHint("use python and javascript")
		}
		if len(r.Allow) > 0 && !r.Only {
			return InvalidField(at+".allow", "it is nothing without only").WithHint("set only, or leave the list out")
		}
		for name, list := range map[string][]string{"imports": r.Imports, "calls": r.Calls, "attributes": r.Attributes, "allow": r.Allow} {
			if len(list) > maxScreenNames {
				return InvalidField(at+"."+name, "%d names are too many", len(list)).WithHint("give at most %d", maxScreenNames)
			}
			if i := slices.IndexFunc(list, func(n string) bool { return n == "" || len(n) > maxScreenName }); i >= 0 {
				return InvalidField(at+"."+name, "%q is no name", Clip(list[i], 80)).WithHint("give 1 to %d bytes", maxScreenName)
			}
		}
	}
	return nil
}

// Clone returns a copy that shares nothing with s.
func (s *Screening) Clone() *Screening {
	if s == nil {
		return nil
	}
	out := *s
	out.Rules = maps.Clone(s.Rules)
	for l, r := range out.Rules {
		r.Imports, r.Calls, r.Attributes, r.Allow = slices.Clone(r.Imports), slices.Clone(r.Calls), slices.Clone(r.Attributes), slices.Clone(r.Allow)
		out.Rules[l] = r
	}
	return &out
}

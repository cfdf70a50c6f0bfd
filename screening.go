package brig

import (
	"maps"
	"slices"
)

// Screening is a set of rules that reject code by its source text. It is advisory
// and not a security boundary: code that passes is isolated like any other code.
type Screening struct {
	// Rules are the rules for Python and JavaScript. The rules for JavaScript also
	// apply to TypeScript.
	Rules map[Language]ScreenRules `json:",omitempty"`
	// Others allows code in languages without rules.
	Others bool `json:",omitempty"`
}

// ScreenRules are the rules for sources of one language.
type ScreenRules struct {
	// Imports are modules that code may not import, including their submodules
	// ("os" includes "os.path", "fs" includes "fs/promises").
	Imports []string `json:",omitempty"`
	// Calls are functions that code may not use: "eval", "os.system". A name
	// without a dot is a builtin. "ctypes" matches the whole module. "open(w)"
	// is the use of open other than for reading. "*.constructor" is the member
	// "constructor" of any object.
	Calls []string `json:",omitempty"`
	// Attributes are members that code may not read on any object.
	Attributes []string `json:",omitempty"`
	// Only inverts the import rules: code is rejected if it imports modules
	// that are not in Allow, or if it cannot be parsed.
	Only  bool     `json:",omitempty"`
	Allow []string `json:",omitempty"`
	// Commands allows IPython commands: !ls, %pip install.
	Commands bool `json:",omitempty"`
}

// Limits on the lists in a Screening. They are bounded because each call is
// checked against all entries.
const (
	maxScreenNames = 1000
	maxScreenName  = 256
)

// Check returns an error for invalid rules. Nil means no screening. field is
// the name of the field in the request.
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

// Clone returns a deep copy of s.
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

package brig_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestScreeningCheck(t *testing.T) {
	for field, s := range map[string]*brig.Screening{
		"s":                {Rules: map[brig.Language]brig.ScreenRules{brig.TypeScript: {}}},
		"s.python.allow":   {Rules: map[brig.Language]brig.ScreenRules{brig.Python: {Allow: []string{"json"}}}},
		"s.python.imports": {Rules: map[brig.Language]brig.ScreenRules{brig.Python: {Imports: []string{""}}}},
		"s.javascript.calls": {Rules: map[brig.Language]brig.ScreenRules{
			brig.JavaScript: {Calls: []string{strings.Repeat("x", 257)}},
		}},
		"s.python.attributes": {Rules: map[brig.Language]brig.ScreenRules{brig.Python: {Attributes: make([]string, 1001)}}},
	} {
		err := s.Check("s")
		if e := brig.AsError(err); e == nil || e.Field != field || e.Hint == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	fine := &brig.Screening{Rules: map[brig.Language]brig.ScreenRules{brig.Python: {Only: true, Allow: []string{"json"}, Calls: []string{"eval"}}}}
	if err := fine.Check("s"); err != nil {
		t.Error(err)
	}
	c := fine.Clone()
	c.Rules[brig.Python].Calls[0] = "scribbled"
	delete(c.Rules, brig.Python)
	if fine.Rules[brig.Python].Calls[0] != "eval" || (*brig.Screening)(nil).Check("s") != nil || (*brig.Screening)(nil).Clone() != nil {
		t.Error("a copy shares, or nil is something")
	}
}

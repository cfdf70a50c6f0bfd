package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// The engine rejects an invalid step before it creates a sandbox, and the error
// names the field.
func TestInvalidStepsAreRejected(t *testing.T) {
	e := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	deep := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	for name, c := range map[string]struct {
		p     brig.Program
		field string
	}{
		"another language": {brig.Program{Language: brig.JavaScript, Code: "1", Step: &brig.Step{}}, "step"},
		"arguments":        {brig.Program{Language: brig.Python, Code: "1", Arguments: json.RawMessage("{}"), Step: &brig.Step{}}, "arguments"},
		"count":            {brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{Count: -1}}, "step.count"},
		"not JSON":         {brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{State: json.RawMessage(`{"v":`)}}, "step.state"},
		"not an object":    {brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{State: json.RawMessage(`[1]`)}}, "step.state"},
		"too deep":         {brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{State: json.RawMessage(deep)}}, "step.state"},
		"too much":         {brig.Program{Language: brig.Python, Code: "1", Step: &brig.Step{State: json.RawMessage(`{"a":"` + strings.Repeat("x", brig.MaxState) + `"}`)}}, "step.state"},
		"a command":        {brig.Program{Command: []string{"true"}, Step: &brig.Step{}}, "step"},
	} {
		_, err := e.Run(ctx, c.p, brig.IO{})
		if brig.KindOf(err) != brig.InvalidArgument || brig.AsError(err).Field != c.field {
			t.Errorf("%s: %v, field %q", name, err, brig.AsError(err).Field)
		}
	}
}

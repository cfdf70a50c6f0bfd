package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// displayMessage returns the message that displays a text.
func displayMessage(text, id string, update bool) *interpreter.Message {
	return &interpreter.Message{Type: "display", Data: map[string]json.RawMessage{"text/plain": json.RawMessage(text)}, DisplayID: id, Update: update}
}

// TestValuesKeepLastUpdate verifies that a result has the last value of each display, and that
// updates do not use up the limits on values and bytes. The control displays as many values
// without an ID.
func TestValuesKeepLastUpdate(t *testing.T) {
	var v, control values
	v.add(displayMessage("0", "bar", false))
	v.add(displayMessage("other", "", false))
	v.add(displayMessage("again", "bar", false))
	for i := range 1000 {
		text := fmt.Sprint(1000 + i)
		if sent := v.add(displayMessage(text, "bar", true)); !sent.Update || string(sent.Data["text/plain"]) != text {
			t.Fatalf("a listener gets %+v", sent)
		}
		control.add(displayMessage(text, "", false))
	}
	v.add(displayMessage("earlier", "of an earlier run", true))
	v.add(displayMessage("earlier, later", "of an earlier run", true))
	var got []string
	for _, r := range v.list {
		got = append(got, fmt.Sprintf("%s %t", r.Data["text/plain"], r.Update))
	}
	if all := strings.Join(got, "|"); all != "1999 false|other false|1999 false|earlier, later true" || v.omitted != 0 {
		t.Errorf("%s, %d left out", all, v.omitted)
	}
	if size := 4*len("text/plain") + len("1999other1999earlier, later"); v.size != size {
		t.Errorf("%d bytes, want %d", v.size, size)
	}
	if len(control.list) != brig.MaxOutputs-1 || control.omitted == 0 {
		t.Errorf("control: %d values, %d left out", len(control.list), control.omitted)
	}
}

// TestValuesAreLimited verifies that an oversized update leaves the previous value, and that an
// overlong ID is ignored.
func TestValuesAreLimited(t *testing.T) {
	var v values
	v.add(displayMessage("0", "bar", false))
	v.add(displayMessage(strings.Repeat("x", brig.MaxOutputSize), "bar", true))
	v.add(displayMessage("1", strings.Repeat("x", maxDisplayID+1), true))
	if len(v.list) != 2 || string(v.list[0].Data["text/plain"]) != "0" || v.omitted != 1 || v.list[1].DisplayID != "" || v.list[1].Update {
		t.Errorf("%d values, %d left out", len(v.list), v.omitted)
	}
}

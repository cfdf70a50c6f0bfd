package brig_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestJSONDepth(t *testing.T) {
	for doc, want := range map[string]int{
		``: 0, `1`: 0, `"[[["`: 0, `"\\"[`: 1, `"\"[["`: 0, `{}`: 1, `[[],[[]]]`: 3, `{"a":[{"b":{}}],"c":[]}`: 4, `]]]`: 0,
		strings.Repeat("[", 100): 100,
	} {
		if got := brig.JSONDepth([]byte(doc)); got != want {
			t.Errorf("%s is %d deep, want %d", brig.Clip(doc, 40), got, want)
		}
	}
}

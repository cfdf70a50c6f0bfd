package builder

import (
	"errors"
	"strings"
	"testing"
)

func TestExpandText(t *testing.T) {
	values := map[string]string{"A": "1", "LONG_1": "two"}
	value := func(name string) (string, error) { return values[name], nil }
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$A": "1", "${A}": "1", "x${A}y$LONG_1.z": "x1ytwo.z", "$A$A": "11", "$NONE-": "-",
		"$": "$", "a$": "a$", "cost$5": "cost$5", "pa$$word": "pa$", "${A": "${A", "${}": "${}", "${A-b}": "${A-b}",
		`\$A`: "$A", `\\$A`: `\$A`, `a\b`: `a\b`, "$A/$": "1/$",
	} {
		if got, err := expandText(text, value); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

// A value that repeats a reference to a long one ends in an error before it takes much memory.
func TestExpandedTextIsBounded(t *testing.T) {
	long := strings.Repeat("x", maxText)
	calls := 0
	_, err := expandText(strings.Repeat("$A", maxText/2), func(string) (string, error) { calls++; return long, nil })
	if err == nil || calls > 2 {
		t.Errorf("%d references are replaced, %v", calls, err)
	}
	if _, err := expandText("$A", func(string) (string, error) { return long, nil }); err != nil { // control
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := expandText("$A", func(string) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

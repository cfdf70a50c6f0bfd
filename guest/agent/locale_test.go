package agent

import (
	"slices"
	"testing"
)

// withLocale keeps a locale that the caller has set, and does not add another
// one.
func TestWithLocaleKeepsCallersLocale(t *testing.T) {
	for _, env := range [][]string{
		{"PATH=/bin", "LANG=de_DE.UTF-8"},
		{"LC_ALL=C", "PATH=/bin"},
		{"LC_TIME=en_GB.UTF-8"},
		{"LANG="},
	} {
		if got := withLocale(env); !slices.Equal(got, env) {
			t.Errorf("%q became %q", env, got)
		}
	}
	env := make([]string, 1, 2)
	env[0] = "LANGUAGE=de"
	if got := withLocale(env); !slices.Equal(got, []string{"LANGUAGE=de", plainLocale()}) {
		t.Errorf("%q became %q", env, got)
	}
	if full := env[:2]; full[1] != "" {
		t.Errorf("the caller's own was written to: %q", full)
	}
}

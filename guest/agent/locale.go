package agent

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// plainLocale is what a program gets that nobody has said a locale for:
// characters are UTF-8, and all else is plain C. By LC_CTYPE alone, as Python
// does for itself: LANG has every program that asks for its locale load a dozen
// others that are the same as C's, a quarter of bash's start. It
// needs an image in which glibc finds it, or bash complains of LC_CTYPE, as
// it never does of LANG.
var plainLocale = sync.OnceValue(func() string {
	for _, name := range []string{"C.utf8", "C.UTF-8"} {
		if _, err := os.Stat("/usr/lib/locale/" + name + "/LC_CTYPE"); err == nil {
			return "LC_CTYPE=C.UTF-8"
		}
	}
	return "LANG=C.UTF-8"
})

// localised is an environment that says a locale.
func localised(env []string) []string {
	if slices.ContainsFunc(env, func(kv string) bool {
		return strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LC_")
	}) {
		return env
	}
	return append(env[:len(env):len(env)], plainLocale())
}

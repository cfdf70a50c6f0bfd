package brig

import "strings"

// The bounds of an environment.
const (
	maxEnv      = 1000    // variables
	maxEnvBytes = 1 << 20 // bytes of names and values
)

// CheckEnv refuses an environment that no program could have. Errors name the
// field.
func CheckEnv(field string, env map[string]string) error {
	if len(env) > maxEnv {
		return InvalidField(field, "%d variables are too many", len(env)).WithHint("give at most %d", maxEnv)
	}
	size := 0
	for k, v := range env {
		size += len(k) + len(v)
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return InvalidField(field, "%q cannot be a variable", Clip(k, 80)).
				WithHint("names are not empty and have no =; neither names nor values have NUL")
		}
	}
	if size > maxEnvBytes {
		return InvalidField(field, "%d bytes are too many", size).WithHint("give at most 1MiB; put larger things into files")
	}
	return nil
}

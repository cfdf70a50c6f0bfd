package schema

import (
	"encoding/json"
	"strings"

	"github.com/brig-run/brig"
)

// mask stands for what is not shown of a secret.
const mask = "****"

// shown is how many of a secret's last characters are shown, and hidden how
// many more it must have for that: of a short one nothing is.
const shown, hidden = 4, 8

// Mask returns a secret as it may be seen.
func Mask(s string) string {
	if s == "" {
		return ""
	}
	if len(s) < shown+hidden {
		return mask
	}
	return mask + s[len(s)-shown:]
}

// Masked returns a configuration, as JSON, with its secrets masked.
func Masked(raw []byte, fields []brig.ConfigField) ([]byte, error) {
	return Replace(raw, fields, func(_, s string) string { return Mask(s) })
}

// Unmasked returns a configuration in which every secret that is as Masked
// shows it is what it was before.
func Unmasked(raw, before []byte, fields []brig.ConfigField) ([]byte, error) {
	was := map[string]json.RawMessage{}
	if len(before) > 0 {
		if err := json.Unmarshal(before, &was); err != nil {
			return nil, err
		}
	}
	return Replace(raw, fields, func(name, s string) string {
		var old string
		if json.Unmarshal(was[name], &old) == nil && strings.HasPrefix(s, mask) && s == Mask(old) {
			return old
		}
		return s
	})
}

// Replace replaces the secrets of a configuration. What is not an object stays
// as it is, for Decode to say so.
func Replace(raw []byte, fields []brig.ConfigField, f func(name, s string) string) ([]byte, error) {
	var given map[string]json.RawMessage
	_ = json.Unmarshal(raw, &given) // what is none leaves nothing to replace
	if given == nil {
		return raw, nil
	}
	for _, field := range fields {
		var s string
		if !field.Secret || json.Unmarshal(given[field.Name], &s) != nil {
			continue
		}
		v, err := json.Marshal(f(field.Name, s))
		if err != nil {
			return nil, err
		}
		given[field.Name] = v
	}
	return json.Marshal(given)
}
